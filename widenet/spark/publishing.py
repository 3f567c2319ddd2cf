"""Publishes a dataset in an object store from one task, which gets all rows through Spark's shuffle.

So executors need no common file system: Spark moves the rows, in chunks of Arrow's stream format, and sorts
the chunks by their numbers.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from widenet import errors
from widenet.data.options import Options
from widenet.data.writer import publication
from widenet.errors import WidenetError
from widenet.spark.contents import Contents, Tally
from widenet.spark.examples import examples

_EXAMPLES, _ITEMS = 0, 1
_CHUNK_BYTES = 2**16
"""Bytes of a chunk, unless it has a single row. Spark hands up to 10,000 of them to a task at a time."""

_CHUNK = "kind int, partition int, number bigint, rows bigint, data binary"
_SCHEMA = pa.schema(
    [
        ("kind", pa.int32()),
        ("partition", pa.int32()),
        ("number", pa.int64()),
        ("rows", pa.int64()),
        ("data", pa.binary()),
    ]
)


def examples_as_chunks(by_user: DataFrame, options: Options) -> DataFrame:
    """Return the examples of interactions that are sorted by user, as chunks; `rows` counts interactions."""
    field, duplicates = options.field, options.selection.duplicates
    has_values, has_times = options.has_values, options.keep_times

    def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition, number, rows = TaskContext.get().partitionId(), 0, Tally(batches)
        for batch in examples(rows, field, duplicates, has_values, has_times):
            for part in _parts(batch):
                yield _chunk(_EXAMPLES, partition, number, 0, _bytes(part))
                number += 1
        yield _chunk(_EXAMPLES, partition, number, rows.num_rows, b"")

    return by_user.mapInArrow(chunks, _CHUNK)


def items_as_chunks(placed: DataFrame) -> DataFrame:
    """Return items as chunks, which their places sort."""

    def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in _parts(batch):
                yield _chunk(_ITEMS, 0, part.column("place")[0].as_py(), 0, _bytes(part))

    return placed.mapInArrow(chunks, _CHUNK)


def publish_dataset(uri: str, rows: DataFrame, items: DataFrame, contents: Contents) -> None:
    """Write a dataset in the cache of one executor, and publish it from there.

    Spark may run the task again after it has published: then it finds its own dataset there.

    Args:
        uri: Where to publish it.
        rows: Its examples, as chunks.
        items: Its items, as chunks.
        contents: What it holds beside them.

    Raises:
        DataError: The URI is taken meanwhile, or the interactions have changed.
        StoreError: The store refuses.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups = groupby(_chunks(batches), lambda chunk: chunk["kind"])
        problem = {"kind": [""], "message": [""]}
        try:
            with publication(Path(uri), is_repeated=True) as folder:
                contents.write(folder, _examples(groups, contents), _items(groups))
        except WidenetError as error:
            problem = {"kind": [type(error).__name__], "message": [str(error)]}
        yield pa.RecordBatch.from_pydict(problem)

    together = rows.union(items).repartition(1).sortWithinPartitions("kind", "partition", "number")
    [(kind, message)] = together.mapInArrow(write, "kind string, message string").collect()
    if kind:
        raise getattr(errors, kind)(message)


def _examples(groups: Iterator[Any], contents: Contents) -> Iterator[pa.RecordBatch]:
    num_rows = 0
    for chunk in next(groups)[1]:
        num_rows += chunk["rows"]
        if chunk["data"]:
            yield from pa.ipc.open_stream(chunk["data"])
    contents.check(num_rows)


def _items(groups: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    for chunk in next(groups)[1]:
        yield from pa.ipc.open_stream(chunk["data"])


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for row in range(batch.num_rows):
            yield batch.slice(row, 1).to_pylist()[0]


def _chunk(kind: int, partition: int, number: int, rows: int, data: bytes) -> pa.RecordBatch:
    values = (kind, partition, number, rows, data)
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into parts of about as many bytes as a chunk should have."""
    step = max(1, batch.num_rows * _CHUNK_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
