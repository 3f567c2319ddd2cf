"""What one dataset holds out that another one trains on."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part

_ROWS_AT_ONCE = 16_384


def trained_on(dataset: Dataset, field: str, part: Part, training: Dataset) -> int:
    """How many entries of a part are in the train part of the example of the same id in another dataset.

    Features are the same that have one name, or where the field of a dataset has no names, one index.
    Memory: a table of all ids of the other dataset, four bytes an example of this one, and the entries of
    some examples.
    """
    found, index_there = 0, _index_there(dataset, field, training)
    width = max(each.field(field).width for each in (dataset, training))
    row_there = pc.fill_null(pc.index_in(_ids(dataset), value_set=_ids(training)), -1).to_numpy()
    for start in range(0, dataset.num_examples, _ROWS_AT_ONCE):
        there = row_there[start : start + _ROWS_AT_ONCE].astype(np.int64)
        here = np.flatnonzero(there >= 0)
        asked = _entries(dataset, field, part, start + here, width, index_there)
        found += int(np.isin(asked, _entries(training, field, "train", there[here], width)).sum())
    return found


def _index_there(dataset: Dataset, field: str, training: Dataset) -> np.ndarray | None:
    """The index of each feature in the other dataset, int64 [width], -1 where it has none; None where an
    index is all that is known.
    """
    if None in (dataset.field(field).vocabulary, training.field(field).vocabulary):
        return None
    return training.vocabulary(field).indices_of(dataset.vocabulary(field))


def _ids(dataset: Dataset) -> pa.ChunkedArray:
    """Of all examples, in pieces as they are stored: in one piece they could be more text than Arrow's
    strings hold.
    """
    return pa.chunked_array([batch.column("id") for batch in dataset.record_batches()], pa.string())


def _entries(
    dataset: Dataset,
    field: str,
    part: Part,
    rows: np.ndarray,
    width: int,
    index_there: np.ndarray | None = None,
) -> np.ndarray:
    """Every entry of some examples as one number, int64: which of these examples it is of, and which
    feature it is there.
    """
    entries = dataset.sparse(field, rows, part)
    features = entries.indices.long().numpy() if index_there is None else index_there[entries.indices.numpy()]
    numbers: np.ndarray = entries.example_of_entry().numpy() * width + features
    return numbers[features >= 0]
