"""What a dataset's files hold, from sorted interactions, in the workers of partitions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.data.buckets import ROWS_PER_BUCKET, Rows, entries
from widenet.data.ingest_arguments import Duplicates
from widenet.data.manifest import Facts
from widenet.data.rules import FieldLayout
from widenet.data.writer import VOCABULARY_SCHEMA, SortedEntries, assembled, write_contents
from widenet.errors import DataError
from widenet.spark.interactions import PLACE

_USER_BITS = np.uint64(32)


def examples(
    batches: Iterable[pa.RecordBatch],
    field: str,
    duplicates: Duplicates,
    has_values: bool,
    has_times: bool,
    rows_at_once: int = ROWS_PER_BUCKET,
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a dataset's examples, as `widenet data ingest` stores them.

    Args:
        batches: `user` and `feature`, and perhaps `value` and `time`; all rows of a user stand together.
        field: Name of the field.
        duplicates: Which row of a repeated pair counts.
        has_values: Whether to store values.
        has_times: Whether to store times.
        rows_at_once: Number of rows to merge at a time, beside further ones of the last user.
    """
    for table in whole(batches, "user", rows_at_once):
        starts = starts_of(table, "user")
        user = np.cumsum(starts, dtype=np.uint64) - np.uint64(1)
        key = user << _USER_BITS | table.column("feature").to_numpy().astype(np.uint64)
        value, time = (
            table.column(name).to_numpy() if name in table.column_names else None
            for name in ("value", "time")
        )
        merged = entries(Rows(key, value, time).merged(duplicates), has_times=has_times)
        ids = pa.RecordBatch.from_arrays([table.column("user").filter(pa.array(starts))], ["id"])
        yield from assembled(
            [ids], {"train": SortedEntries([merged], has_times)}, field, has_values, None, has_times
        )


def whole(batches: Iterable[pa.RecordBatch], column: str, rows_at_once: int = 1) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in other batches, each with all rows of its values in a column."""
    pending: list[pa.RecordBatch] = []
    held, limit = 0, rows_at_once
    for batch in batches:
        pending.append(batch)
        held += batch.num_rows
        if held >= limit:
            joined = pa.concat_batches(pending)
            stop = int(np.flatnonzero(starts_of(joined, column))[-1])
            if stop:
                yield joined.slice(0, stop)
            pending, held = [joined.slice(stop)], held - stop
            limit = held + rows_at_once
    if held:
        yield pa.concat_batches(pending)


def starts_of(batch: pa.RecordBatch, column: str) -> np.ndarray:
    """Whether each row has another value in a column than the row before it, bool [rows]; not for no rows."""
    values, starts = batch.column(column), np.ones(batch.num_rows, dtype=bool)
    starts[1:] = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1)).to_numpy(
        zero_copy_only=False
    )
    return starts


@dataclass(frozen=True)
class Contents:
    """What the files of a dataset hold beside its rows.

    Attributes:
        name: Name of the dataset.
        layout: Its field.
        facts: Facts about its origin.
        num_rows: Number of interactions.
    """

    name: str
    layout: FieldLayout
    facts: Facts
    num_rows: int

    def check(self, num_rows: int) -> None:
        """Raise DataError unless as many interactions were read as were counted."""
        if num_rows != self.num_rows:
            raise DataError("must not change while it is read; it did", place=PLACE)

    def write(
        self, folder: Path, examples: Iterable[pa.RecordBatch], items: Iterable[pa.RecordBatch]
    ) -> None:
        """Write the files into a folder.

        Args:
            folder: The folder.
            examples: The examples in order; all are read before the first item.
            items: `item` and `count`, in the order of features.
        """
        write_contents(
            folder,
            name=self.name,
            layouts=[self.layout],
            batches=examples,
            vocabularies={self.layout.name: map(_names, items)},
            has_weights=False,
            source=self.facts,
        )


def _names(items: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of the vocabulary."""
    ids, numbers = items.column("item"), items.column("count")
    columns = [ids.cast(pa.string()), pa.nulls(items.num_rows, pa.string()), numbers]
    return pa.RecordBatch.from_arrays(columns, schema=VOCABULARY_SCHEMA)


class Tally:
    """Counts the rows of the batches that pass."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self.num_rows = batches, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.num_rows += batch.num_rows
            yield batch
