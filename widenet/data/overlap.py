"""What one dataset holds out that another one trains on."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part

_ROWS_AT_ONCE = 16_384


def trained_on(dataset: Dataset, field: str, part: Part, training: Dataset) -> int:
    """How many entries of a part are in the train part of the example of the same id in another dataset, of the same features.

    Memory: a table of all ids of the other dataset, four bytes an example of this one, and the entries of some examples.
    """
    width, found = dataset.field(field).width, 0
    row_there = pc.fill_null(pc.index_in(_ids(dataset), value_set=_ids(training)), -1).to_numpy()
    for start in range(0, dataset.num_examples, _ROWS_AT_ONCE):
        there = row_there[start : start + _ROWS_AT_ONCE].astype(np.int64)
        here = np.flatnonzero(there >= 0)
        asked = _entries(dataset, field, part, start + here, width)
        found += int(np.isin(asked, _entries(training, field, "train", there[here], width)).sum())
    return found


def _ids(dataset: Dataset) -> pa.ChunkedArray:
    """Of all examples, in pieces as they are stored: in one piece they could be more text than Arrow's strings hold."""
    return pa.chunked_array([batch.column("id") for batch in dataset.record_batches()], pa.string())


def _entries(dataset: Dataset, field: str, part: Part, rows: np.ndarray, width: int) -> np.ndarray:
    """Every entry of some examples as one number, int64: which of these examples it is of, and which feature it is."""
    entries = dataset.sparse(field, rows, part)
    return (entries.example_of_entry() * width + entries.indices.long()).numpy()
