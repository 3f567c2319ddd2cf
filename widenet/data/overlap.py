"""Counts held-out entries that another dataset trains on, or that an example has in other parts."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part

_ROWS_AT_ONCE = 16_384


def trained_on(dataset: Dataset, field: str, part: Part, training: Dataset) -> int:
    """Count the entries of a part that are in the train part of the same example in another dataset.

    Examples are the same if they have the same id. Features are the same if they have the same name or, if
    the field of a dataset has no names, the same index. A feature of a sequence that its example has in the
    train part, too, does not count: to come again is no secret.

    Memory holds a table of all ids of the other dataset, four bytes for each example of this one, and the
    entries of some examples.
    """
    num_common, other_index = 0, _other_index(dataset, field, training)
    comes_again = dataset.field(field).kind == "sequence" and part != "train"
    width = max(each.field(field).width for each in (dataset, training))
    other_row = pc.fill_null(pc.index_in(_ids(dataset), value_set=_ids(training)), -1).to_numpy()
    for start in range(0, dataset.num_examples, _ROWS_AT_ONCE):
        rows = other_row[start : start + _ROWS_AT_ONCE].astype(np.int64)
        common = np.flatnonzero(rows >= 0)
        entries = _entries(dataset, field, part, start + common, width, other_index)
        if comes_again:
            known = _entries(dataset, field, "train", start + common, width, other_index)
            entries = entries[~np.isin(entries, known)]
        trained = _entries(training, field, "train", rows[common], width)
        num_common += int(np.isin(entries, trained).sum())
    return num_common


def known_before(dataset: Dataset, field: str, part: Part, earlier: Sequence[Part]) -> int:
    """Count the distinct entries of a part that the same example has in earlier parts too."""
    num_known, width = 0, dataset.field(field).width
    for start in range(0, dataset.num_examples, _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, dataset.num_examples))
        entries = np.unique(_entries(dataset, field, part, rows, width))
        for each in earlier:
            is_known = np.isin(entries, _entries(dataset, field, each, rows, width))
            num_known += int(is_known.sum())
            entries = entries[~is_known]
    return num_known


def _other_index(dataset: Dataset, field: str, training: Dataset) -> np.ndarray | None:
    """The index of each feature in the other dataset, int64 [width]; -1 if it has none.

    None if a dataset has no names, so that indices are compared.
    """
    if None in (dataset.field(field).vocabulary, training.field(field).vocabulary):
        return None
    return training.vocabulary(field).indices_of(dataset.vocabulary(field))


def _ids(dataset: Dataset) -> pa.ChunkedArray:
    """The ids of all examples, in the chunks in which they are stored.

    A single chunk might be too large for Arrow's strings.
    """
    return pa.chunked_array([batch.column("id") for batch in dataset.record_batches()], pa.string())


def _entries(
    dataset: Dataset,
    field: str,
    part: Part,
    rows: np.ndarray,
    width: int,
    other_index: np.ndarray | None = None,
) -> np.ndarray:
    """Number the entries of some examples, int64 [Z]: position of the example * `width` + feature."""
    entries = dataset.sparse(field, rows, part)
    features = entries.indices.long().numpy() if other_index is None else other_index[entries.indices.numpy()]
    numbers: np.ndarray = entries.example_of_entry().numpy() * width + features
    return numbers[features >= 0]
