"""Rows of a dataset from sorted streams of entries, a record batch at a time."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from widenet.data.manifest import Part, column, time_column, value_column

_EXAMPLES_AT_ONCE = 1024
"""Of which memory holds all entries: an example may have very many."""


class SortedEntries:
    """A stream of (example, feature, value), and perhaps time, in ascending order of (example, feature),
    taken piece by piece.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], has_times: bool = False) -> None:
        self._schema = _ENTRIES.append(pa.field("time", pa.float64())) if has_times else _ENTRIES
        self._batches = iter(batches)
        self._held: list[pa.RecordBatch] = []

    def until(self, stop: int) -> pa.Table:
        """All entries of the examples before `stop` that were not yet taken: columns example, feature,
        value, and perhaps time.
        """
        taken: list[pa.RecordBatch] = []
        while True:
            batch = self._held.pop() if self._held else next(self._batches, None)
            if batch is None:
                break
            first_beyond = int(np.searchsorted(batch.column(0).to_numpy(), stop))
            taken.append(batch.slice(0, first_beyond))
            if first_beyond < batch.num_rows:
                self._held.append(batch.slice(first_beyond))
                break
        return pa.Table.from_batches(taken, schema=self._schema)


_ENTRIES = pa.schema([("example", pa.int64()), ("feature", pa.uint32()), ("value", pa.float32())])


def assembled(
    ids: Iterable[pa.RecordBatch],
    parts: Mapping[Part, SortedEntries],
    field: str,
    has_values: bool,
    further: Mapping[str, SortedEntries] | None = None,
    has_times: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Record batches of the example columns: each batch of ids, and of what stands beside them, with the rows
    of every part.

    further: the entries of other fields, by name; these have no values.
    """
    start = 0
    for names in (
        each.slice(first, _EXAMPLES_AT_ONCE)
        for each in ids
        for first in range(0, each.num_rows, _EXAMPLES_AT_ONCE)
    ):
        stop = start + names.num_rows
        columns: dict[str, pa.Array] = dict(zip(names.schema.names, names.columns, strict=True))
        for part, entries in parts.items():
            table = entries.until(stop)
            columns[column(field, part)] = _lists(table, "feature", start, names.num_rows)
            if has_values:
                columns[value_column(field, part)] = _lists(table, "value", start, names.num_rows)
            if has_times:
                columns[time_column(field, part)] = _lists(table, "time", start, names.num_rows)
        for name, entries in (further or {}).items():
            columns[name] = _lists(entries.until(stop), "feature", start, names.num_rows)
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        start = stop


def _lists(table: pa.Table, entry: str, first: int, num_rows: int) -> pa.Array:
    """A column of the entries of the examples `first` and on, a list for each."""
    offsets = np.zeros(num_rows + 1, dtype=np.int32)
    np.cumsum(np.bincount(table.column("example").to_numpy() - first, minlength=num_rows), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), table.column(entry).combine_chunks())
