"""What one task writes: the files of a dataset, from its examples and items in order."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from widenet.data.manifest import Facts
from widenet.data.rules import FieldLayout
from widenet.data.writer import VOCABULARY_SCHEMA, write_contents
from widenet.errors import DataError
from widenet.spark.columns import PLACE


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
            raise DataError(f"{PLACE}: must not change while it is read; it did. Write it to files first.")

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
