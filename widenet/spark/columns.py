"""Reads the interactions of a DataFrame as `widenet data ingest` reads those of a file."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 its usual name
from pyspark.sql.types import DataType

from widenet.data.formats.columns import choose_column
from widenet.data.formats.sql import LARGEST_FLOAT32
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
    "id": 'must be text or whole numbers; cast it with `.cast("string")`',
    "value": 'must be a number; cast it with `.cast("double")`',
    "time": 'must be a timestamp, a date or a number; cast it with `.cast("timestamp")` or `.cast("double")`',
}


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
        if df.columns.count(name) > 1:
            raise DataError(f'{PLACE}: column "{name}" occurs {df.columns.count(name)} times. Rename them.')
        if name in columns.values():
            first = next(each for each in columns if columns[each] == name)
            raise DataError(f'{PLACE}: column "{name}" cannot be both {first} and {role}. Name another.')
        columns[role] = name
    read = [_converted(df, role, name).alias(role) for role, name in columns.items()]
    return Interactions(df.select(*read), columns, _base(df.schema[columns["item"]].dataType) in _WHOLE)


def _converted(df: DataFrame, role: str, name: str) -> Column:
    kind, group = df.schema[name].dataType, role if role in _TYPES else "id"
    if _base(kind) not in _TYPES[group]:
        rule, _, remedy = _RULES[group].partition("; ")
        raise DataError(
            f'{PLACE}: column "{name}" {rule}, as the {role}; it is {kind.simpleString()}.'
            f" {remedy.capitalize()}."
        )
    column = F.col("`" + name.replace("`", "``") + "`")
    if group == "id":
        # Another collation would merge ids that differ, and order them in its own way.
        return F.nullif(F.collate(column.cast("string"), "UTF8_BINARY"), F.lit(""))
    number, largest = _number(column, _base(kind)), LARGEST_FLOAT32 if role == "value" else _LARGEST
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
