"""Reads interactions of a DataFrame as `widenet data ingest` does those of a file, and counts them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 its usual name
from pyspark.sql.types import DataType

from widenet.data.columns import LARGEST_FLOAT32, RULES, choose_column
from widenet.errors import DataError

PLACE = "the DataFrame"

_LARGEST = 1.7976931348623157e308
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TYPES = {
    "id": ("string", *_WHOLE),
    "value": (*_WHOLE, "float", "double"),
    "time": (*_WHOLE, "double", "timestamp", "timestamp_ntz", "date"),
}
_RULES = {
    "id": "must be text or whole numbers",
    "value": "must be a number",
    "time": "must be a timestamp, a date or a number, if whole below 2^53",
}


_INTEGER = r"\A-?[0-9]{1,38}\z"
_DIGITS_OF_BIGINT = 18
_ROW_BITS = 33
"""Bits of `monotonically_increasing_id` for the row within its partition."""


@dataclass(frozen=True)
class Interactions:
    """The rows of a DataFrame; a cell that breaks the rule of its role is null.

    Attributes:
        frame: `user` and `item` as text, and perhaps `value` and `time` as doubles.
        columns: The column of each role.
        has_whole_items: Whether items are whole numbers by their type.
    """

    frame: DataFrame
    columns: Mapping[str, str]
    has_whole_items: bool


def interactions(df: DataFrame, user: str, item: str, value: str | None, time: str | None) -> Interactions:
    """Choose and convert the columns of a DataFrame.

    Raises:
        DataError: A column does not exist, occurs twice, has two roles or a wrong type.
    """
    named = {"user": user, "item": item, "value": value, "time": time}
    columns: dict[str, str] = {}
    for role, given in named.items():
        if given is None:
            continue
        name = choose_column(PLACE, df.columns, role, given)
        times = df.columns.count(name)
        DataError.require(times == 1, "must occur once", place=PLACE, column=name, value=times)
        rule = f"cannot be {role} and something else"
        DataError.require(name not in columns.values(), rule, place=PLACE, column=name)
        columns[role] = name
    read = [_converted(df, role, name).alias(role) for role, name in columns.items()]
    return Interactions(df.select(*read), columns, _base(df.schema[columns["item"]].dataType) in _WHOLE)


def _converted(df: DataFrame, role: str, name: str) -> Column:
    kind, group = df.schema[name].dataType, role if role in _TYPES else "id"
    if _base(kind) not in _TYPES[group]:
        raise DataError(_RULES[group], place=PLACE, column=name, option=role, value=kind.simpleString())
    column = F.col("`" + name.replace("`", "``") + "`")
    if group == "id":
        # Another collation would merge ids that differ, and order them in its own way.
        return F.nullif(F.collate(column.cast("string"), "UTF8_BINARY"), F.lit(""))
    base, largest = _base(kind), LARGEST_FLOAT32 if role == "value" else _LARGEST
    if role == "time" and base in _WHOLE:
        largest = 2**53 - 1  # beyond, other times would be equal
    number = _number(column, base)
    return F.when(F.abs(number) <= largest, number)  # NaN is above every number


def _number(column: Column, kind: str) -> Column:
    """A column as a double; times are seconds since 1970, and those without a time zone are UTC."""
    if kind == "timestamp_ntz":
        epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        return F.timestamp_diff("MICROSECOND", epoch, column) / 1e6
    if kind == "timestamp":
        micros, of_millisecond = F.unix_micros(column), F.pmod(F.unix_micros(column), F.lit(1000))
        return (micros - of_millisecond) / 1000 / 1000 + of_millisecond / 1e6  # rounded as DuckDB does
    if kind == "date":
        return (F.unix_date(column) * 86_400).cast("double")
    return column.cast("double")


def _base(kind: DataType) -> str:
    """The name of a type; that of text with a collation or a limited length is "string"."""
    name: str = kind.simpleString()
    return "string" if name.startswith(("string", "varchar", "char")) else name


@dataclass(frozen=True)
class Counts:
    """Counts of some interactions.

    Attributes:
        num_rows: Number of interactions.
        num_pairs: Number of interactions without repeated ones.
        num_items: Number of items.
        longest: Length of the longest user and item, by role; None if not all are whole numbers.
    """

    num_rows: int
    num_pairs: int
    num_items: int
    longest: dict[str, int | None]


def order_of(role: str, longest: int | None) -> list[Column]:
    """The columns that sort users or items: by value if all are whole numbers, then by bytes.

    Args:
        role: The column.
        longest: Length of the longest name; None if not all are whole numbers.
    """
    name = F.col(role)
    if longest is None:
        return [name]
    return [name.try_cast("bigint" if longest <= _DIGITS_OF_BIGINT else "decimal(38,0)"), name]


def count(rows: Interactions) -> tuple[Counts, DataFrame]:
    """Count some interactions; also returns the items with the count of each.

    Raises:
        DataError: A cell breaks the rule of its role, or there is no interaction.
    """
    numbers = [role for role in rows.columns if role in ("value", "time")]
    pairs = rows.frame.groupBy("user", "item").agg(
        F.count(F.lit(1)).alias("num_rows"), *(F.count(role).alias(f"num_{role}") for role in numbers)
    )
    own = F.col("num_rows")
    mistakes = {"user": F.sum(F.when(F.col("user").isNull(), own))}
    mistakes |= {role: F.sum(own - F.col(f"num_{role}")) for role in numbers}
    by_item = pairs.groupBy("item").agg(
        F.count(F.lit(1)).alias("count"),
        F.sum(own).alias("num_rows"),
        *(number.alias(f"bad_{role}") for role, number in mistakes.items()),
        *facts_of("user"),
    )
    items = by_item.localCheckpoint()
    mistakes = {role: F.sum(f"bad_{role}") for role in mistakes}
    mistakes["item"] = F.sum(F.when(F.col("item").isNull(), own))
    [total] = items.agg(
        F.sum("num_rows").alias("num_rows"),
        F.sum("count").alias("num_pairs"),
        F.count(F.lit(1)).alias("num_items"),
        *(number.alias(f"bad_{role}") for role, number in mistakes.items()),
        *(F.max(f"user_{fact}").alias(f"user_{fact}") for fact in ("texts", "broken", "longest")),
        *facts_of("item"),
    ).collect()
    check_cells(total.asDict(), rows)
    longest = {role: longest_of(role, total) for role in ("user", "item")}
    return Counts(total["num_rows"], total["num_pairs"], total["num_items"], longest), items


def longest_of(role: str, total: Row) -> int | None:
    """What `order_of` asks of the users or items, from the aggregates of `facts_of`."""
    return None if total[f"{role}_texts"] else int(total[f"{role}_longest"])


def facts_of(role: str) -> list[Column]:
    """What decides the order of names, and whether all can be stored: aggregates over a column."""
    name = F.col(role)
    return [
        F.max(~name.rlike(_INTEGER)).alias(f"{role}_texts"),
        F.max(F.contains(name, F.lit("\0")) | ~F.is_valid_utf8(name)).alias(f"{role}_broken"),
        F.max(F.length(name)).alias(f"{role}_longest"),
    ]


def check_cells(total: dict[str, Any], rows: Interactions) -> None:
    """Raise DataError for the first wrong column.

    Args:
        total: The number of rows, `num_rows`, of cells that break a rule, `bad_ROLE`, and `ROLE_broken`.
        rows: The interactions.
    """
    for role, column in rows.columns.items():
        number = total[f"bad_{role}"]
        rule = f"{RULES[role]}; rows that break this rule: {number}"
        DataError.require(not number, rule, place=PLACE, column=column)
        is_broken, rule = total.get(f"{role}_broken"), "must hold UTF-8 without the character NUL"
        DataError.require(not is_broken, rule, place=PLACE, column=column)
    DataError.require(total["num_rows"], "must hold an interaction", place=PLACE)


def placed_items(items: DataFrame, counts: Counts) -> DataFrame:
    """Return items in the order of features, the most frequent first: `item`, `count` and `place`."""
    ordered = items.orderBy(F.col("count").desc(), *order_of("item", counts.longest["item"]))
    return ordered.select("item", "count", place_of_row()).localCheckpoint()


def place_of_row() -> Column:
    """The column `place`: a row's partition and its row there; store it before it is used."""
    return F.monotonically_increasing_id().alias("place")


def numbered(placed: DataFrame) -> DataFrame:
    """Add the number of each row over all partitions, from its stored place."""
    partition = F.shiftright("place", _ROW_BITS).cast("int")
    sizes = dict(placed.groupBy(partition.alias("partition")).count().collect())
    starts = [sum(sizes.get(before, 0) for before in range(number)) for number in range(max(sizes) + 1)]
    row = F.col("place").bitwiseAND(2**_ROW_BITS - 1)
    start = F.get(F.array(*(F.lit(each).cast("bigint") for each in starts)), partition)
    return placed.withColumn("number", row + start)
