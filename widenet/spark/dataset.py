"""Writes a DataFrame of interactions as a dataset directory."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 its usual name

from widenet.data.dataset import Dataset
from widenet.data.ingest_arguments import Duplicates
from widenet.data.manifest import WHOLE_NUMBERS, Facts
from widenet.data.options import Options, check
from widenet.data.rules import FieldLayout
from widenet.data.writer import publication
from widenet.spark.columns import Interactions, interactions
from widenet.spark.contents import Contents, Tally
from widenet.spark.counts import (
    Counts,
    Keep,
    check_unrepeated,
    count,
    kept_in,
    kept_on_executors,
    numbered,
    order_of,
    placed_items,
)
from widenet.spark.examples import examples
from widenet.spark.publishing import examples_as_chunks, items_as_chunks, publish_dataset
from widenet.spark.session import check_executors, plain_place, session_of
from widenet.stores.bucket import Bucket
from widenet.stores.publish import check_vacant
from widenet.stores.uri import Uri

ROWS_PER_TASK = 2**21
"""Interactions of a task that sorts and merges users, about."""

_IN_MEMORY = "the table"
_PIECE = pa.schema([("partition", pa.int32()), ("path", pa.string()), ("rows", pa.int64())])


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
        StoreError: The store of `path` refuses.
        OptionError: An option is wrong, or executors differ from the driver.
    """
    options = Options(
        user=user,
        item=item,
        value=value,
        time=time,
        duplicates=duplicates,
        keep_times=keep_times,
        field=field,
    )
    check(options)
    spark, out = session_of(df), plain_place("path", path)
    rows = interactions(df, user, item, value, time)
    if isinstance(out, str):
        check_vacant(Bucket(Uri.of(out)))
        check_executors(spark, out)
        whole = _Whole.of(df, rows, options, name, kept_on_executors)
        publish_dataset(
            out, examples_as_chunks(whole.by_user, options), items_as_chunks(whole.placed), whole.contents
        )
    else:
        with publication(out) as folder:
            scratch = folder / "scratch"
            scratch.mkdir()
            check_executors(spark, scratch)
            whole = _Whole.of(df, rows, options, name, kept_in(scratch))
            pieces = _pieces(whole, scratch, options)
            _written(spark, pieces, folder, whole.contents)
            shutil.rmtree(scratch)
    return Dataset.open(Path(out))


@dataclass(frozen=True)
class _Whole:
    """All rows of a dataset, in its order.

    Attributes:
        by_user: The interactions: `user`, `feature` and perhaps `value` and `time`, sorted by user within
            partitions that follow each other.
        placed: The items: see `counts.placed_items`.
        contents: What the files hold beside these rows.
    """

    by_user: DataFrame
    placed: DataFrame
    contents: Contents

    @classmethod
    def of(
        cls, df: DataFrame, rows: Interactions, options: Options, name: str | None, keep: Keep
    ) -> "_Whole":
        """Count, check and number interactions."""
        counts, items = count(rows, keep)
        if options.selection.duplicates == "error":
            check_unrepeated(rows.frame)
        placed = placed_items(items, counts, keep)
        features = numbered(placed).select("item", F.col("number").alias("feature"))
        order, columns = order_of("user", counts.longest["user"]), ["user", "feature", *options.roles.numbers]
        parallelism = df.sparkSession.sparkContext.defaultParallelism
        number = max(parallelism, -(-counts.num_rows // ROWS_PER_TASK))
        joined = rows.frame.join(features, "item").repartitionByRange(number, *order)
        sources = sorted(unquote(urlparse(file).path) for file in df.inputFiles())
        names = [file.rpartition("/")[2] for file in sources] or [_IN_MEMORY]
        layout = FieldLayout(
            options.field, counts.num_items, "sparse", ("train",), options.has_values, options.keep_times
        )
        facts = _facts(counts, options, names, rows.has_whole_items)
        contents = Contents(name or names[0].split(".")[0], layout, facts, counts.num_rows)
        return cls(joined.sortWithinPartitions(*order).select(*columns), placed, contents)


def _pieces(whole: _Whole, scratch: Path, options: Options) -> list[str]:
    """Let each partition write its examples: the files, in order."""
    field, duplicates = options.field, options.selection.duplicates
    has_values, has_times, folder = options.has_values, options.keep_times, scratch / "pieces"
    folder.mkdir()

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition, attempt = context.partitionId(), context.taskAttemptId()
        path, rows = folder / f"{partition}-{attempt}.arrow", Tally(batches)
        made = examples(rows, field, duplicates, has_values, has_times)
        if (first := next(made, None)) is None:
            return
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, first.schema) as writer:
            writer.write_batch(first)
            for batch in made:
                writer.write_batch(batch)
        yield pa.RecordBatch.from_pylist(
            [{"partition": partition, "path": str(path), "rows": rows.num_rows}], _PIECE
        )

    pieces = sorted(whole.by_user.mapInArrow(write, "partition int, path string, rows bigint").collect())
    whole.contents.check(sum(rows for _, _, rows in pieces))
    return [path for _, path, _ in pieces]


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


def _written(spark: SparkSession, pieces: Sequence[str], folder: Path, contents: Contents) -> None:
    """Write the files of the dataset in one task, and move them into their folder."""
    features = folder / "scratch" / "features"

    def write(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = folder / "scratch" / f"dataset-{TaskContext.get().taskAttemptId()}"
        own.mkdir()
        contents.write(own, _stored(pieces), _items(features))
        yield pa.RecordBatch.from_pydict({"path": [str(own)]})

    [(own,)] = spark.range(0, 1, 1, 1).mapInArrow(write, "path string").collect()
    for file in Path(own).iterdir():
        file.rename(folder / file.name)


def _stored(pieces: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        with pa.OSFile(piece, "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader


def _items(folder: Path) -> Iterator[pa.RecordBatch]:
    """The items from Spark's files, in order."""
    for path in sorted(folder.glob("part-*.parquet")):
        yield from pq.ParquetFile(path).iter_batches(columns=["item", "count"])
