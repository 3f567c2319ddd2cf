"""Assembling rows: every cut of the streams gives the same rows."""

import pyarrow as pa
import pytest

from widenet.data.assemble import SortedEntries, assembled

ENTRIES = [(0, 4, 0.5), (0, 9, 1.0), (2, 1, 2.0), (3, 0, 3.0), (3, 2, 4.0), (3, 5, 5.0)]
HELDOUT = [(1, 7, 1.0), (4, 8, 1.0)]


def entries(rows, size):
    """The rows as a stream of record batches of some size."""
    schema = pa.schema([("example", pa.int64()), ("feature", pa.uint32()), ("value", pa.float32())])
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=schema.names).cast(
        schema
    )
    return SortedEntries(table.to_batches(max_chunksize=size))


@pytest.mark.parametrize("names_per_batch", [1, 2, 3, 5])
@pytest.mark.parametrize("entries_per_batch", [1, 2, 4, 100])
def test_rows_do_not_depend_on_how_names_and_entries_are_cut(names_per_batch, entries_per_batch):
    names = pa.table({"id": ["a", "b", "c", "d", "e"]}).to_batches(max_chunksize=names_per_batch)
    parts = {"train": entries(ENTRIES, entries_per_batch), "heldout": entries(HELDOUT, entries_per_batch)}
    rows = pa.Table.from_batches(assembled(names, parts, "items", has_values=True))
    assert rows.column("id").to_pylist() == ["a", "b", "c", "d", "e"]
    assert rows.column("items").to_pylist() == [[4, 9], [], [1], [0, 2, 5], []]
    assert rows.column("items.value").to_pylist() == [[0.5, 1.0], [], [2.0], [3.0, 4.0, 5.0], []]
    assert rows.column("items.heldout").to_pylist() == [[], [7], [], [], [8]]
