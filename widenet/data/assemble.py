"""Makes rows of a dataset from sorted streams of entries, one record batch at a time."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from widenet.data.manifest import Part, column, time_column, value_column

_EXAMPLES_AT_ONCE = 1024
"""Examples whose entries are in memory together. The number is small, because an example may have many."""


class SortedEntries:
    """A stream of entries in ascending order of example and feature, to be taken piece by piece.

    Its batches have the columns example, feature, value, and perhaps time.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], has_times: bool = False) -> None:
        self._schema = _ENTRIES.append(pa.field("time", pa.float64())) if has_times else _ENTRIES
        self._batches = iter(batches)
        self._pending: list[pa.RecordBatch] = []

    def until(self, stop: int) -> pa.Table:
        """Take all entries of the examples before `stop` that were not taken yet.

        Returns:
            The columns example, feature, value, and perhaps time.
        """
        taken: list[pa.RecordBatch] = []
        while True:
            batch = self._pending.pop() if self._pending else next(self._batches, None)
            if batch is None:
                break
            first_beyond = int(np.searchsorted(batch.column(0).to_numpy(), stop))
            taken.append(batch.slice(0, first_beyond))
            if first_beyond < batch.num_rows:
                self._pending.append(batch.slice(first_beyond))
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
    """Yield the example columns in record batches.

    Args:
        ids: The ids of the examples, and further columns beside them, in order.
        parts: The entries of each part of the field.
        field: Name of the field.
        has_values: Whether to store the values.
        further: The entries of other fields, which have no values, by name.
        has_times: Whether to store the times.
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
    """Make a column with a list of entries for each example from `first` on."""
    offsets = np.zeros(num_rows + 1, dtype=np.int32)
    np.cumsum(np.bincount(table.column("example").to_numpy() - first, minlength=num_rows), out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), table.column(entry).combine_chunks())
