"""Writes a DataFrame of interactions as a dataset directory."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from widenet.data.dataset import Dataset
from widenet.data.ingest_arguments import Duplicates
from widenet.data.manifest import WHOLE_NUMBERS, Facts
from widenet.data.options import Options, check
from widenet.data.rules import FieldLayout
from widenet.data.writer import VOCABULARY_SCHEMA, publication, write_contents
from widenet.errors import DataError
from widenet.spark.columns import PLACE, interactions
from widenet.spark.counts import Counts, check_unrepeated, count, numbered_items, order_of
from widenet.spark.examples import examples
from widenet.spark.session import check_executors, plain_path, session_of

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
        path: The directory to make, on a file system that the driver and all executors share.
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
    spark, out = session_of(df), plain_path("path", path)
    rows = interactions(df, user, item, value, time)
    with publication(out) as folder:
        scratch = folder / "scratch"
        scratch.mkdir()
        check_executors(spark, scratch)
        counts = count(rows, scratch / "counts")
        if options.selection.duplicates == "error":
            check_unrepeated(rows.frame)
        features = numbered_items(spark, scratch / "counts", counts, scratch / "features")
        pieces = _pieces(rows.frame.join(features, "item"), counts, scratch, options)
        sources = sorted(unquote(urlparse(file).path) for file in df.inputFiles())
        names = [file.rpartition("/")[2] for file in sources] or [_IN_MEMORY]
        facts = _facts(counts, options, names, rows.has_whole_items)
        _written(spark, pieces, folder, counts, options, facts, name or names[0].split(".")[0])
        shutil.rmtree(scratch)
    return Dataset.open(out)


def _pieces(joined: DataFrame, counts: Counts, scratch: Path, options: Options) -> list[str]:
    """Sort the interactions by user, and let each partition write its examples: the files, in order."""
    number = max(joined.sparkSession.sparkContext.defaultParallelism, -(-counts.num_rows // ROWS_PER_TASK))
    order, columns = order_of("user", counts.longest["user"]), ["user", "feature", *options.roles.numbers]
    by_user = joined.repartitionByRange(number, *order).sortWithinPartitions(*order).select(*columns)
    field, duplicates = options.field, options.selection.duplicates
    has_values, has_times, folder = options.has_values, options.keep_times, scratch / "pieces"
    folder.mkdir()

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition, attempt = context.partitionId(), context.taskAttemptId()
        path, rows = folder / f"{partition}-{attempt}.arrow", _Tally(batches)
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

    pieces = sorted(by_user.mapInArrow(write, "partition int, path string, rows bigint").collect())
    if sum(rows for _, _, rows in pieces) != counts.num_rows:
        raise DataError(f"{PLACE}: must not change while it is read; it did. Write it to files first.")
    return [path for _, path, _ in pieces]


class _Tally:
    """Counts the rows of the batches that pass."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self.num_rows = batches, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.num_rows += batch.num_rows
            yield batch


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


def _written(
    spark: SparkSession,
    pieces: Sequence[str],
    folder: Path,
    counts: Counts,
    options: Options,
    facts: Facts,
    name: str,
) -> None:
    """Write the files of the dataset in one task, and move them into their folder."""
    layout = FieldLayout(
        options.field, counts.num_items, "sparse", ("train",), options.has_values, options.keep_times
    )
    features = folder / "scratch" / "features"

    def write(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        own = folder / "scratch" / f"dataset-{TaskContext.get().taskAttemptId()}"
        own.mkdir()
        write_contents(
            own,
            name=name,
            layouts=[layout],
            batches=_stored(pieces),
            vocabularies={layout.name: _vocabulary(features)},
            has_weights=False,
            source=facts,
        )
        yield pa.RecordBatch.from_pydict({"path": [str(own)]})

    [(own,)] = spark.range(0, 1, 1, 1).mapInArrow(write, "path string").collect()
    for file in Path(own).iterdir():
        file.rename(folder / file.name)


def _stored(pieces: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        with pa.OSFile(piece, "rb") as source, pa.ipc.open_stream(source) as reader:
            yield from reader


def _vocabulary(folder: Path) -> Iterator[pa.RecordBatch]:
    """The rows of the vocabulary from Spark's files, in order."""
    for path in sorted(folder.glob("part-*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(columns=["item", "count"]):
            ids, numbers = batch.columns
            columns = [ids.cast(pa.string()), pa.nulls(batch.num_rows, pa.string()), numbers]
            yield pa.RecordBatch.from_arrays(columns, schema=VOCABULARY_SCHEMA)
