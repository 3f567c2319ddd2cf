"""Writes a DataFrame of interactions as a dataset directory, or publishes it in an object store.

One task gets all rows through Spark's shuffle: Spark moves the rows, in chunks of Arrow's stream format, and
sorts the chunks by their numbers. So executors need a common file system only for a directory.
"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 its usual name

from widenet import errors
from widenet.data.dataset import Dataset
from widenet.data.ingest import Options, check
from widenet.data.ingest_arguments import Duplicates
from widenet.data.manifest import WHOLE_NUMBERS, Facts
from widenet.data.rules import FieldLayout
from widenet.data.writer import publication
from widenet.errors import WidenetError
from widenet.spark.interactions import (
    Counts,
    Interactions,
    count,
    interactions,
    numbered,
    order_of,
    placed_items,
)
from widenet.spark.partition_contents import Contents, Tally, examples
from widenet.spark.session import check_executors, session_of, shared_place
from widenet.stores.bucket import Bucket
from widenet.stores.folders import check_vacant
from widenet.stores.uri import Uri

ROWS_PER_TASK = 2**21
"""Interactions of a task that sorts and merges users, about."""

_IN_MEMORY = "the table"


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


def write_dataset(
    df: DataFrame,
    path: str | Path,
    *,
    user: str,
    item: str,
    value: str | None = None,
    time: str | None = None,
    duplicates: Duplicates | None = None,
    keep_times: bool = False,
    field: str = "items",
    name: str | None = None,
) -> Dataset:
    """Write a DataFrame of interactions as a dataset directory, and open it.

    The directory is the one that `widenet data ingest` makes of the same rows, byte for byte. Executors read
    the DataFrame two to four times and sort, number and merge; one task then writes the files. The driver
    sees counts alone.

    Args:
        df: One row for each interaction.
        path: The directory to make, on a file system that the driver and all executors share, or the URI of a
            new dataset in an object store.
        user: Column with the user: text or whole numbers.
        item: Column with the item: text or whole numbers.
        value: Column with a number for each interaction, such as a rating.
        time: Column with the time. Of repeated interactions, the last one counts.
        duplicates: Which value of repeated interactions counts; see `widenet.ingest`.
        keep_times: Store times, so that `widenet.split` can set the last items aside.
        field: Name of the dataset's field.
        name: Name of the dataset. Default: the name of the first file that `df` reads.

    Returns:
        The dataset, opened.

    Raises:
        DataError: A column, a cell or `path` breaks a rule.
        StoreError: The store of `path` refuses, or holds something already.
        OptionError: An option is wrong, or executors differ from the driver.
    """
    options = Options(
        df,
        path,
        user=user,
        item=item,
        value=value,
        time=time,
        duplicates=duplicates,
        keep_times=keep_times,
        field=field,
    )
    check(options)
    spark, out = session_of(df), shared_place("path", path)
    rows = interactions(df, user, item, value, time)
    if isinstance(out, str):
        check_vacant(Bucket(Uri.of(out)))
        check_executors(spark, out)
        # Spark may run the task again after it has published: then it finds its own dataset there.
        place = partial(publication, Path(out), is_repeated=True)
        _write(*_counted(df, rows, options, name), options, place)
    else:
        with publication(out) as folder:
            scratch = folder / "scratch"
            scratch.mkdir()
            check_executors(spark, scratch)
            _write(*_counted(df, rows, options, name), options, partial(_attempt, scratch))
            shutil.rmtree(scratch)
    return Dataset.open(Path(out))


def _counted(
    df: DataFrame, rows: Interactions, options: Options, name: str | None
) -> tuple[DataFrame, DataFrame, Contents]:
    """Count, check and number interactions.

    Returns:
        The interactions: `user`, `feature` and perhaps `value` and `time`, sorted by user within partitions
        that follow each other. The items: see `interactions.placed_items`. What the files hold beside these.
    """
    counts, items = count(rows)
    placed = placed_items(items, counts)
    features = numbered(placed).select("item", F.col("number").alias("feature"))
    order, columns = order_of("user", counts.longest["user"]), ["user", "feature", *options.numbers]
    number = max(df.sparkSession.sparkContext.defaultParallelism, -(-counts.num_rows // ROWS_PER_TASK))
    joined = rows.frame.join(features, "item").repartitionByRange(number, *order)
    sources = sorted(unquote(urlparse(file).path) for file in df.inputFiles())
    names = [file.rpartition("/")[2] for file in sources] or [_IN_MEMORY]
    layout = FieldLayout(
        options.field, counts.num_items, "sparse", ("train",), options.has_values, options.keep_times
    )
    facts = _facts(counts, options, names, rows.has_whole_items)
    contents = Contents(name or names[0].split(".")[0], layout, facts, counts.num_rows)
    return joined.sortWithinPartitions(*order).select(*columns), placed, contents


def _facts(counts: Counts, options: Options, sources: Sequence[str], has_whole_items: bool) -> Facts:
    """Return the facts about the origin of the dataset, as ingest records them."""
    return {
        "sources": list(sources),
        "min_value": None,
        **({WHOLE_NUMBERS: [options.field]} if has_whole_items else {}),
        "train_rows_read": counts.num_rows,
        "train_duplicates_merged": counts.num_rows - counts.num_pairs,
        "train_below_min_value": 0,
        "heldout_rows_read": 0,
        "heldout_duplicates_merged": 0,
        "heldout_below_min_value": 0,
        "heldout_already_in_train": 0,
    }


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


@contextmanager
def _attempt(scratch: Path) -> Iterator[Path]:
    """Give a folder for the files of one attempt of a task, and move them above the scratch folder."""
    own = Path(mkdtemp(dir=scratch))
    yield own
    for file in own.iterdir():
        file.replace(scratch.parent / file.name)


def _write(
    by_user: DataFrame,
    placed: DataFrame,
    contents: Contents,
    options: Options,
    place: Callable[[], AbstractContextManager[Path]],
) -> None:
    """Write a dataset on one executor, into the folder that a context gives there.

    Raises:
        DataError: The place is taken meanwhile, or the interactions have changed.
        StoreError: The store refuses.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        groups = groupby(_chunks(batches), lambda chunk: chunk["kind"])
        problem = {"kind": [""], "message": [""]}
        try:
            with place() as folder:
                contents.write(folder, _chunked_examples(groups, contents), _chunked_items(groups))
        except WidenetError as error:
            problem = {"kind": [type(error).__name__], "message": [str(error)]}
        yield pa.RecordBatch.from_pydict(problem)

    chunks = examples_as_chunks(by_user, options).union(items_as_chunks(placed))
    together = chunks.repartition(1).sortWithinPartitions("kind", "partition", "number")
    [(kind, message)] = together.mapInArrow(write, "kind string, message string").collect()
    if kind:
        raise getattr(errors, kind)(message)


def _chunked_examples(groups: Iterator[Any], contents: Contents) -> Iterator[pa.RecordBatch]:
    num_rows = 0
    for chunk in next(groups)[1]:
        num_rows += chunk["rows"]
        if chunk["data"]:
            yield from pa.ipc.open_stream(chunk["data"])
    contents.check(num_rows)


def _chunked_items(groups: Iterator[Any]) -> Iterator[pa.RecordBatch]:
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
