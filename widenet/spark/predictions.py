"""Recommends items to the users of a DataFrame."""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 its usual name

from widenet.data.ingest_arguments import Duplicates
from widenet.data.manifest import value_column
from widenet.data.options import Options, check
from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError, FitError
from widenet.evaluate import output_of
from widenet.metrics.ranking import checked_k
from widenet.parallel.group import check_device
from widenet.parallel.launcher import leave_launcher
from widenet.parallel.threads import fixed_arithmetic
from widenet.predict.files import table_of
from widenet.predict.rows import rows_a_block
from widenet.predict.top_k import Filter, top_k
from widenet.runs.model import Model
from widenet.spark.columns import PLACE, Interactions, interactions
from widenet.spark.counts import (
    check_cells,
    check_unrepeated,
    facts_of,
    longest_of,
    numbered,
    order_of,
    place_of_row,
)
from widenet.spark.dataset import ROWS_PER_TASK
from widenet.spark.examples import examples, starts_of, whole
from widenet.spark.session import check_executors, session_of, shared_path
from widenet.sparse import SparseBatch
from widenet.training.run_directory import RunDirectory

_SCHEMA = "user string, item string, score float, rank int"


def predict(
    df: DataFrame,
    run: str | Path,
    *,
    user: str,
    item: str,
    value: str | None = None,
    time: str | None = None,
    duplicates: Duplicates | None = None,
    k: int = 100,
    exclude_seen: bool = True,
    output: str | None = None,
    device: str | None = None,
) -> DataFrame:
    """Recommend items to every user of a DataFrame of interactions.

    The rows are those that `widenet predict` writes for a dataset of these interactions, with the same
    scores. Items that the run does not know are left out, and so are users who have no others. Executors load
    the model once in each of their Python processes.

    Args:
        df: One row for each interaction.
        run: The run directory, on a file system that the driver and all executors share. Its network must
            read one sparse field, and give the same one.
        user: Column with the user.
        item: Column with the item.
        value: Column with the value of each interaction, for networks that were trained with values.
        time: Column with the time; of repeated interactions, the last one counts.
        duplicates: Which value of repeated interactions counts; see `widenet.ingest`.
        k: Number of recommendations for each user.
        exclude_seen: Leave out the items that a user has.
        output: The output layer, if the network has several.
        device: "cpu" or "cuda"; None uses CUDA where an executor has it.

    Returns:
        The columns user, item, score and rank, from 1; in no order.

    Raises:
        DataError: A column or a cell breaks a rule.
        FitError: The network needs more than the items of users.
        CheckpointError: There is no such run.
        OptionError: An option is wrong, or executors differ from the driver.
    """
    options = Options(user=user, item=item, value=value, time=time, duplicates=duplicates)
    check(options)
    spark, directory = session_of(df), RunDirectory.open(shared_path("run", run))
    field, version = _only_field(directory), directory.model().digest
    check_device(device)
    output = output_of([layer.name for layer in directory.network.outputs], output)
    rows = interactions(df, user, item, value, time)
    check_executors(spark, directory.path)
    known, longest = _known(rows, _features(spark, directory.vocabulary(field)))
    if options.selection.duplicates == "error":
        check_unrepeated(known)
    step = rows_a_block(min(checked_k(k), directory.fields[field].width))
    path, rule, has_values = directory.path, options.selection.duplicates, options.has_values

    def recommend(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.environ.setdefault("WIDENET_THREADS", str(TaskContext.get().cpus()))
        model = _model(path, version, device)
        for several in whole(batches, "block"):
            starts = np.flatnonzero(starts_of(several, "block"))
            for start, stop in zip(starts, [*starts[1:], several.num_rows], strict=True):
                made = examples(
                    [several.slice(start, stop - start)], field, rule, has_values, has_times=False
                )
                block = pa.Table.from_batches(made).combine_chunks()
                yield from _recommended(model, block, field, k, exclude_seen, output).to_batches()

    number = max(spark.sparkContext.defaultParallelism, -(-known.count() // ROWS_PER_TASK))
    block = F.floor(F.col("number") / step).alias("block")
    by_block = known.join(_numbered_users(known, longest), "user").repartition(number, block)
    ordered = by_block.sortWithinPartitions("number")
    return ordered.select(block, "user", "feature", *options.roles.numbers).mapInArrow(recommend, _SCHEMA)


def _only_field(directory: RunDirectory) -> str:
    """The field that a run reads and gives; raises FitError if there are several, or it is not sparse."""
    fields = directory.network.fields
    if len(fields) > 1 or directory.fields[fields[0]].kind != "sparse":
        named = ", ".join(f"{name} ({directory.fields[name].kind})" for name in fields)
        raise FitError(
            f"{directory.path}: a DataFrame of interactions has one sparse field; the network has {named}."
            " Use `widenet predict` with a dataset."
        )
    return fields[0]


def _features(spark: SparkSession, vocabulary: Vocabulary) -> DataFrame:
    """The items that a run knows: `item` and `feature`, read by executors."""
    path, number = vocabulary.path, sum(1 for _ in vocabulary.record_batches())

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = {number for batch in batches for number in batch.column("id").to_pylist()}
        start = 0
        for number, batch in enumerate(Vocabulary.open(path).record_batches()):
            features = pa.array(np.arange(start, start + batch.num_rows))
            start += batch.num_rows
            if number in wanted:
                yield pa.RecordBatch.from_arrays([batch.column("id"), features], ["item", "feature"])

    return spark.range(0, number, 1, number).mapInArrow(read, "item string, feature bigint")


def _known(rows: Interactions, features: DataFrame) -> tuple[DataFrame, int | None]:
    """The rows of known items, stored on the executors, and what `order_of` asks of their users.

    Raises:
        DataError: A cell breaks the rule of its role, or no item is known.
    """
    frame = rows.frame.join(features, "item", "left").localCheckpoint()
    bad = {role: F.count_if(F.col(role).isNull()).alias(f"bad_{role}") for role in rows.columns}
    [mistakes] = frame.agg(F.count(F.lit(1)).alias("num_rows"), *bad.values()).collect()
    known = frame.where("feature IS NOT NULL")
    [total] = known.agg(F.count(F.lit(1)).alias("num_rows"), *facts_of("user")).collect()
    check_cells({**mistakes.asDict(), "user_broken": total["user_broken"]}, rows)
    if not total["num_rows"]:
        raise DataError(f"{PLACE}: at least one item must be known to the run; none is. Name another run.")
    return known, longest_of("user", total)


def _numbered_users(known: DataFrame, longest: int | None) -> DataFrame:
    """The users in the order of a dataset: `user` and `number`."""
    ordered = known.select("user").distinct().orderBy(*order_of("user", longest))
    return numbered(ordered.select("user", place_of_row()).localCheckpoint()).select("user", "number")


@lru_cache(maxsize=1)
def _model(run: Path, version: str, device: str | None) -> Model:  # noqa: ARG001 another version is another model
    """The model of a run; a Python process loads it once, and keeps the last one."""
    leave_launcher()  # Spark's processes work alone, whatever the executor has inherited
    return Model.load(run, device)


def _recommended(
    model: Model, block: pa.Table, field: str, k: int, exclude_seen: bool, output: str
) -> pa.Table:
    """Recommend to the users of a block, together as `widenet predict` does."""
    lists = block.column(field).chunk(0)
    indices = lists.flatten().to_numpy().astype(np.int64)
    values = None
    if value_column(field) in block.column_names:
        values = torch.tensor(block.column(value_column(field)).chunk(0).flatten().to_numpy())
    batch = SparseBatch(
        torch.tensor(lists.offsets.to_numpy().astype(np.int64)), torch.tensor(indices), values
    )
    names = model.run.vocabulary(field)
    allowed = Filter().within(len(names), model.network.outputs[output])
    with fixed_arithmetic():
        scores_EK, units_EK = top_k(
            model.network, {field: batch}, output, k, batch if exclude_seen else None, allowed
        )
    kept_EK = units_EK >= 0
    return table_of(
        block.column("id"),
        kept_EK.sum(dim=1).cpu().numpy(),
        names.ids(units_EK[kept_EK].cpu().numpy()),
        scores_EK[kept_EK].cpu().to(torch.float32).numpy(),
    )
