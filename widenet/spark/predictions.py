"""Recommends items to the users of a DataFrame."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyspark import Broadcast, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 its usual name

from widenet.arguments import check_choice
from widenet.data.ingest import Options, check
from widenet.data.ingest_arguments import Duplicates
from widenet.data.manifest import value_column
from widenet.errors import CheckpointError, DataError, FitError
from widenet.metrics.ranking import checked_k
from widenet.parallel.exchange import fixed_arithmetic
from widenet.parallel.launch import leave_launcher
from widenet.predict.files import table_of
from widenet.predict.restrictions import Restrictions
from widenet.runs.model import Model
from widenet.runs.recommending import output_layer, restrictions_of
from widenet.runs.run_arguments import (
    AtMost,
    Never,
    NeverFor,
    Only,
    OnlyFor,
    PredictArguments,
    Weights,
    Where,
)
from widenet.spark.dataset_directory import ROWS_PER_TASK
from widenet.spark.interactions import (
    PLACE,
    Interactions,
    check_cells,
    facts_of,
    interactions,
    longest_of,
    numbered,
    order_of,
    place_of_row,
)
from widenet.spark.partition_contents import examples, starts_of, whole
from widenet.spark.session import check_executors, session_of, shared_place
from widenet.sparse import SparseBatch
from widenet.stores.uri import shown
from widenet.training.run_directory import RunDirectory

_SCHEMA = "user string, item string, score float, rank int"


@dataclass(frozen=True)
class _Wanted:
    """What the executors recommend: the arguments of `widenet predict`, read in the driver.

    Attributes:
        output: Name of the output.
        k: Number of recommendations for each user.
        exclude_seen: Whether to leave out the items that a user has.
        restrictions: Which items may be recommended.
    """

    output: str
    k: int
    exclude_seen: bool
    restrictions: Restrictions


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
    never: Never = None,
    only: Only = None,
    never_for: NeverFor = None,
    only_for: OnlyFor = None,
    weights: Weights = None,
    at_most: AtMost = None,
    where: Where = None,
    output: str | None = None,
    device: str | None = None,
) -> DataFrame:
    """Recommend items to every user of a DataFrame of interactions.

    The rows are those that `widenet predict` writes for a dataset of these interactions, with the same
    scores. Items that the run does not know are left out, and so are users who have no others. Executors load
    the model once in each of their Python processes.

    Args:
        df: One row for each interaction.
        run: The run directory, on a file system that the driver and all executors share, or the URI of one in
            an object store, which each executor copies. Its network must read one sparse field, and give the
            same one.
        user: Column with the user.
        item: Column with the item.
        value: Column with the value of each interaction, for networks that were trained with values.
        time: Column with the time; of repeated interactions, the last one counts.
        duplicates: Which value of repeated interactions counts; see `widenet.ingest`.
        k: Number of recommendations for each user.
        exclude_seen: Leave out the items that a user has.
        never: Items that are never recommended: a list of ids, or a file with one per line. The driver reads
            all files.
        only: The only items that are recommended, likewise. Unknown ids in a filter have no effect, with a
            warning; a filter with unknown ids alone is refused.
        never_for: Items that are never recommended to a user: a list of ids for each, or a CSV file
            (user,item). Users that `df` does not have are ignored.
        only_for: The only items that are recommended to a user, likewise; other users may get all.
        weights: Factors on scores: a number for each id, or a CSV file (item,weight).
        at_most: Recommend at most N items of each category of an attribute.
        where: Recommend only items whose boolean attribute is true, or that have one of these values.
        output: The output layer, if the network has several.
        device: "cpu" or "cuda"; None uses CUDA where an executor has it.

    Returns:
        The columns user, item, score and rank, from 1; in no order.

    Raises:
        DataError: A column, a cell or a file of a filter breaks a rule.
        FitError: The network needs more than the items of users, or a rule does not go with the run.
        CheckpointError: There is no such run.
        StoreError: The store of the run refuses.
        OptionError: An option is wrong, or executors differ from the driver.
    """
    options = Options(df, run, user=user, item=item, value=value, time=time, duplicates=duplicates)
    check(options)
    arguments = PredictArguments(
        "",  # the DataFrame takes the place of a dataset
        k,
        exclude_seen=exclude_seen,
        never=never,
        only=only,
        never_for=never_for,
        only_for=only_for,
        weights=weights,
        at_most=at_most,
        where=where,
    )
    spark, place = session_of(df), shared_place("run", run)
    directory = RunDirectory.open(Path(place))
    field, version = _only_field(directory), directory.model().digest
    check_choice("device", device, ("cpu", "cuda"))
    ranked = output_layer(directory, output)
    restrictions = restrictions_of(directory, ranked, arguments)
    wanted = _Wanted(ranked.name, checked_k(k), exclude_seen, restrictions)
    rows = interactions(df, user, item, value, time)
    check_executors(spark, place)
    known, longest = _known(rows, _features(spark, place, directory, field))
    step = restrictions.rows_a_block(wanted.k, directory.layout.units[ranked.name])
    recommend = _recommender(
        partial(_model, place, version, device), field, options, spark.sparkContext.broadcast(wanted)
    )
    number = max(spark.sparkContext.defaultParallelism, -(-known.count() // ROWS_PER_TASK))
    block = F.floor(F.col("number") / step).alias("block")
    by_block = known.join(_numbered_users(known, longest), "user").repartition(number, block)
    ordered = by_block.sortWithinPartitions("number")
    return ordered.select(block, "user", "feature", *options.numbers).mapInArrow(recommend, _SCHEMA)


def _recommender(
    load: Callable[[], Model], field: str, options: Options, wanted: Broadcast[_Wanted]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does with its rows, which come with the block and in the order of the users."""
    rule, has_values = options.selection.duplicates, options.has_values

    def recommend(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.environ.setdefault("WIDENET_THREADS", str(TaskContext.get().cpus()))
        model = load()
        for several in whole(batches, "block"):
            starts = np.flatnonzero(starts_of(several, "block"))
            for start, stop in zip(starts, [*starts[1:], several.num_rows], strict=True):
                made = examples(
                    [several.slice(start, stop - start)], field, rule, has_values, has_times=False
                )
                block = pa.Table.from_batches(made).combine_chunks()
                yield from _recommended(model, block, field, wanted.value).to_batches()

    return recommend


def _only_field(directory: RunDirectory) -> str:
    """The field that a run reads and gives; raises FitError if there are several, or it is not sparse."""
    fields = directory.network.fields
    if len(fields) > 1 or directory.fields[fields[0]].kind != "sparse":
        named = ", ".join(f"{name} ({directory.fields[name].kind})" for name in fields)
        raise FitError("must read one sparse field", place=directory.path, value=named)
    return fields[0]


def _features(spark: SparkSession, place: Path | str, run: RunDirectory, field: str) -> DataFrame:
    """The items that a run knows: `item` and `feature`, read by executors."""
    number = sum(1 for _ in run.vocabulary(field).record_batches())

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = {number for batch in batches for number in batch.column("id").to_pylist()}
        start = 0
        for number, batch in enumerate(RunDirectory.open(Path(place)).vocabulary(field).record_batches()):
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
    DataError.require(total["num_rows"], "at least one item must be known to the run", place=PLACE)
    return known, longest_of("user", total)


def _numbered_users(known: DataFrame, longest: int | None) -> DataFrame:
    """The users in the order of a dataset: `user` and `number`."""
    ordered = known.select("user").distinct().orderBy(*order_of("user", longest))
    return numbered(ordered.select("user", place_of_row()).localCheckpoint()).select("user", "number")


@lru_cache(maxsize=1)
def _model(run: Path | str, version: str, device: str | None) -> Model:
    """The model of a run in the version of the driver; a Python process loads it once, and keeps the last."""
    leave_launcher()  # Spark's processes work alone, whatever the executor has inherited
    model = Model.load(run, device)
    is_same = model.run.model().digest == version
    CheckpointError.require(is_same, "has changed since the driver read it", place=shown(run))
    return model


def _recommended(model: Model, block: pa.Table, field: str, wanted: _Wanted) -> pa.Table:
    """Recommend to the users of a block, together as `widenet predict` does."""
    lists = block.column(field).chunk(0)
    indices = lists.flatten().to_numpy().astype(np.int64)
    values = None
    if value_column(field) in block.column_names:
        values = torch.tensor(block.column(value_column(field)).chunk(0).flatten().to_numpy())
    batch = SparseBatch(
        torch.tensor(lists.offsets.to_numpy().astype(np.int64)), torch.tensor(indices), values
    )
    names, users = model.run.vocabulary(field), block.column("id").to_pylist()
    asked = model.network, {field: batch}, wanted.output, wanted.k, users, names
    with fixed_arithmetic():
        found = wanted.restrictions.block(*asked, batch if wanted.exclude_seen else None)
    return table_of(found)
