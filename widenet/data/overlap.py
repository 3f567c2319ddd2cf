"""What one dataset holds out that another one trains on."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part

_ROWS_AT_ONCE = 16_384


def trained_on(dataset: Dataset, field: str, part: Part, training: Dataset) -> int:
    """How many entries of a part are in the train part of the example of the same id in another dataset, of the same features.

    Memory: the ids of all examples of the other dataset, and the entries of some of these.
    """
    names = pa.concat_arrays([batch.column("id") for batch in training.record_batches()])
    width, found, first = dataset.field(field).width, 0, 0
    for batch in dataset.record_batches():
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            ids = batch.column("id").slice(start, _ROWS_AT_ONCE)
            there = pc.fill_null(pc.index_in(ids, value_set=names), -1).to_numpy().astype(np.int64)
            here = np.flatnonzero(there >= 0)
            asked = _entries(dataset, field, part, first + start + here, width)
            found += int(np.isin(asked, _entries(training, field, "train", there[here], width)).sum())
        first += batch.num_rows
    return found


def _entries(dataset: Dataset, field: str, part: Part, rows: np.ndarray, width: int) -> np.ndarray:
    """Every entry of some examples as one number, int64: which of these examples it is of, and which feature it is."""
    entries = dataset.sparse(field, rows, part)
    return (entries.example_of_entry() * width + entries.indices.long()).numpy()
