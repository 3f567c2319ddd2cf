"""The types of the attributes in a source of items: those that its columns have, or guessed from texts."""

import re
from collections.abc import Collection
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from widenet.data.columns import choose_column, literal, quoted
from widenet.data.source import Source, Table, mistake
from widenet.data.tables import Tables
from widenet.errors import DataError, OptionError, did_you_mean, reason_of

ITEMS_OF_SOURCES = "SELECT name FROM features WHERE number IS NOT NULL"
"""A query of the ids of items in the sources; further features are those of an earlier vocabulary."""


def id_column(tables: Tables, source: Source, option: str, named: str | None, ids: str) -> str:
    """Return the column of a source with the ids of users or items: the named one, or the only one with all.

    Args:
        tables: The database of the ingest.
        source: The source.
        option: Python name of the option that names the column.
        named: The column that was named.
        ids: A query of `name`, the ids of the interactions.

    Raises:
        DataError: There is no such column, several columns hold all ids, or it holds fewer than half of them.
    """
    columns = source.columns
    if named is not None:
        columns = [choose_column(source.name, columns, option, named)]
    total = tables.count(f"SELECT count(*) FROM ({ids})")
    found = {column: _num_found(tables, source, column, ids) for column in columns}
    holding_all = [column for column in columns if found[column] == total]
    if named is None and len(holding_all) != 1:
        most = max(columns, key=lambda column: found[column])
        which = " and ".join(f'"{column}"' for column in holding_all)
        held = f"{which} hold" if holding_all else f'no column holds them all; "{most}" holds {found[most]:,}'
        rule = f"must name the column with the {total:,} ids of the interactions: {held}"
        raise DataError(rule + " all of them" * bool(holding_all), place=source.name, option=option)
    [key] = columns if named is not None else holding_all
    if 2 * found[key] < total:
        rule = f"must hold at least half of the {total:,} ids of the interactions; it holds {found[key]:,}"
        raise DataError(rule, place=source.name, column=key, option=option)
    return key


def _num_found(tables: Tables, source: Source, column: str, ids: str) -> int:
    """Count the ids that a column of a source holds."""
    held = f"SELECT {quoted(column)} FROM {source.cells(tables.connection)}"
    try:
        return tables.count(f"SELECT count(*) FROM ({ids}) WHERE name IN ({held})")
    except duckdb.Error as error:
        raise mistake([Table(source, {"item": column})], reason_of(error)) from error


_WHOLE = re.compile(r"U?(TINY|SMALL)INT|U?INTEGER|BIGINT")
_LARGE = re.compile(r"UBIGINT|U?HUGEINT")
_FRACTION = re.compile(r"FLOAT|DOUBLE|DECIMAL.*")
_TIME = re.compile(r"TIMESTAMP.*")
_TEXT = re.compile(r"VARCHAR|UUID|ENUM.*|\"NULL\"")

_TRUE, _FALSE = ("1", "yes", "true", "y", "t"), ("0", "no", "false", "n", "f")
"""Words of booleans, in lower case."""
_Words = tuple[tuple[str, ...], tuple[str, ...]]
"""Words for true and words for false, in lower case."""
_WHOLE_TEXT = "-?(0|[1-9][0-9]*)"
_NUMBER_TEXT = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?"
_DAY_TEXT = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME_TEXT = f"{_DAY_TEXT}[T ][0-9]{{2}}:[0-9]{{2}}.*"
_EXACT = 2**53
"""Up to here a double has every whole number."""


@dataclass(frozen=True)
class ItemColumn:
    """An attribute in a source: its name, its Arrow type and the SQL of its value."""

    name: str
    type: pa.DataType
    value: str


@dataclass(frozen=True)
class Forms:
    """How the cells of items are written.

    Attributes:
        decimal: Decimal separator of numbers in CSV.
        separator: Separates the texts of a list in a cell; None if no cell holds several.
        booleans: Columns of 1 and 0, or yes and no; a column may name its own two words, as in "new=ja/nein".

    Raises:
        OptionError: The separator is empty.
    """

    decimal: str = "."
    separator: str | None = None
    booleans: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.separator == "":
            raise OptionError("`items_separator` must not be empty.")

    @property
    def options(self) -> dict[str, object]:
        """The options that are given, for messages."""
        return {"`items_separator`": self.separator, "`items_booleans`": self.booleans}


def columns_of(
    source: Source, without: set[str], forms: Forms, connection: duckdb.DuckDBPyConnection
) -> list[ItemColumn]:
    """Find the attributes of a source and their types.

    Columns of CSV and values of JSON are numbers, booleans or dates if all of them are; a text with zeros in
    front is no number. Nor is a whole number that would lose digits: one beyond 64 bits, or one above 2^53 in
    a column of fractions.

    Args:
        source: The source.
        without: Columns that are no attributes.
        forms: How cells are written.
        connection: The database.

    Raises:
        DataError: A column holds objects or other values that no attribute can have.
        duckdb.Error: The source cannot be read.
    """
    described = connection.execute(f"DESCRIBE SELECT * FROM {source.typed_rows(connection)}").fetchall()
    types = {str(name): str(kind) for name, kind, *_ in described if name not in without}
    booleans = dict(_named_words(each, source.name, types) for each in forms.booleans)
    is_text = source.text_file is not None
    guessed = [name for name, kind in types.items() if kind == "JSON" or (is_text and kind == "VARCHAR")]
    counts = _counts(source, {name: types[name] for name in guessed}, forms.decimal, connection)
    columns = []
    for name, kind in types.items():
        if name in booleans:
            column: ItemColumn | None = _boolean(source, name, kind, booleans[name], connection)
        elif name in counts:
            column = _guessed(name, kind, counts[name], forms.decimal)
        elif kind == "JSON[]":
            column = _listed(source, name, connection)
        else:
            column = _typed(name, _narrowed(source, name, kind, connection))
        if column is None:
            rule = "must hold texts, numbers, booleans, dates or lists of texts"
            raise DataError(f'{source.name}: column "{name}" {rule}; it holds {kind}.')
        columns.append(_parted(source, column, forms.separator, connection))
    return columns


def _named_words(entry: str, place: str, names: Collection[str]) -> tuple[str, _Words]:
    """The column and the words of an entry of `items_booleans`; raises OptionError if there are none."""
    if entry in names:
        return entry, (_TRUE, _FALSE)
    name, _, words = entry.partition("=")
    if name not in names:
        raise OptionError(
            f'`items_booleans`: {place} has no attribute "{name}", only {", ".join(names)}.'
            f"{did_you_mean(name, names)}"
        )
    true, _, false = words.lower().partition("/")
    if not true or not false or true == false:
        raise OptionError(
            f'`items_booleans` must name two words after "=", as in "{name}=ja/nein"; got "{entry}".'
        )
    return name, ((true,), (false,))


def _boolean(
    source: Source, name: str, kind: str, words: _Words, connection: duckdb.DuckDBPyConnection
) -> ItemColumn:
    """The attribute of a column of words for true and for false; raises DataError for other words."""
    text = f"CAST({_text(name, kind)} AS VARCHAR)"
    true, known = (", ".join(map(literal, each)) for each in (words[0], [*words[0], *words[1], ""]))
    [(wrong,)] = connection.execute(
        f"SELECT min({text}) FROM {source.typed_rows(connection)} WHERE lower({text}) NOT IN ({known})"
    ).fetchall()
    if wrong is not None:
        pairs = ", ".join(f"{yes} and {no}" for yes, no in zip(*words, strict=True))
        rule = f'must hold words for true and false, as `items_booleans` says: {pairs}; got "{wrong}"'
        raise DataError(f'{source.name}: column "{name}" {rule}.')
    return ItemColumn(name, pa.bool_(), f"nullif(lower({text}), '') IN ({true})")


def _parted(
    source: Source, column: ItemColumn, separator: str | None, connection: duckdb.DuckDBPyConnection
) -> ItemColumn:
    """The attribute with lists of texts if a text of it holds the separator, and as it is otherwise."""
    if separator is None or column.type != pa.string():
        return column
    mark, rows = literal(separator), source.typed_rows(connection)
    query = f"SELECT count_if(contains({column.value}, {mark})) FROM {rows}"
    [(number,)] = connection.execute(query).fetchall()
    if not number:
        return column
    texts = f"list_transform(string_split({column.value}, {mark}), lambda entry: trim(entry))"
    return ItemColumn(column.name, pa.list_(pa.string()), f"list_filter({texts}, lambda entry: entry <> '')")


def text_of(source: Source, column: str) -> str:
    """The SQL of a column of `source.typed_rows` as text, in the form of ids; NULL for an empty cell."""
    return f"nullif({_text(column, 'JSON')}, '')" if source.is_json else source.text(column)


def _narrowed(source: Source, name: str, kind: str, connection: duckdb.DuckDBPyConnection) -> str:
    """The type of a column; that of larger whole numbers is 64 bits if all fit, and text otherwise."""
    if not _LARGE.fullmatch(kind):
        return kind
    cell = quoted(name)
    query = f"SELECT count_if({cell} IS NOT NULL AND TRY_CAST({cell} AS BIGINT) IS NULL)"
    [(number,)] = connection.execute(f"{query} FROM {source.typed_rows(connection)}").fetchall()
    return "VARCHAR" if number else "BIGINT"


def _typed(name: str, kind: str) -> ItemColumn | None:
    """An attribute of a column with a type; None if no attribute can have it."""
    cell = quoted(name)
    if kind == "BOOLEAN":
        return ItemColumn(name, pa.bool_(), cell)
    if _WHOLE.fullmatch(kind):
        return ItemColumn(name, pa.int64(), f"CAST({cell} AS BIGINT)")
    if _FRACTION.fullmatch(kind):
        return ItemColumn(name, pa.float64(), _finite(f"CAST({cell} AS DOUBLE)"))
    if kind == "DATE":
        return ItemColumn(name, pa.date32(), cell)
    if _TIME.fullmatch(kind):
        return ItemColumn(name, pa.timestamp("us"), f"make_timestamp(epoch_us({cell}))")
    if _TEXT.fullmatch(kind):
        return ItemColumn(name, pa.string(), f"nullif(CAST({cell} AS VARCHAR), '')")
    if kind.endswith("[]") and not kind.endswith("][]") and not kind.startswith(("STRUCT", "MAP")):
        return ItemColumn(name, pa.list_(pa.string()), _without_nulls(f"CAST({cell} AS VARCHAR[])"))
    return None


def _listed(source: Source, name: str, connection: duckdb.DuckDBPyConnection) -> ItemColumn | None:
    """The attribute of JSON lists; None if a list holds a list or an object."""
    cell = quoted(name)
    nested = f"list_filter({cell}, lambda entry: json_type(entry) IN ('OBJECT', 'ARRAY'))"
    query = f"SELECT count_if(len({nested}) > 0) FROM {source.typed_rows(connection)}"
    [(number,)] = connection.execute(query).fetchall()
    if number:
        return None
    texts = f"list_transform({cell}, lambda entry: entry ->> '$')"
    return ItemColumn(name, pa.list_(pa.string()), _without_nulls(texts))


def _counts(
    source: Source, kinds: dict[str, str], decimal: str, connection: duckdb.DuckDBPyConnection
) -> dict[str, tuple[int, ...]]:
    """Count, for each column of texts or JSON, the cells that are not empty, and those of each kind."""
    if not kinds:
        return {}
    counted = ", ".join(
        f"count_if({test})" for name, kind in kinds.items() for test in _tests(name, kind, decimal)
    )
    [row] = connection.execute(f"SELECT {counted} FROM {source.typed_rows(connection)}").fetchall()
    each = len(row) // len(kinds)
    return {name: row[place * each : (place + 1) * each] for place, name in enumerate(kinds)}


def _tests(name: str, kind: str, decimal: str) -> list[str]:
    """The SQL conditions that a cell is present, and of each kind, in the order of `_guessed`."""
    cell, text = quoted(name), _text(name, kind)
    present = f"coalesce({text}, '') <> ''"
    truth = f"lower({text}) IN ('true', 'false')"
    pattern = _NUMBER_TEXT.replace(r"\.", f"[{decimal}]")
    digits, number = (f"regexp_full_match({text}, '{each}')" for each in (_WHOLE_TEXT, pattern))
    integer = f"TRY_CAST({text} AS BIGINT)"
    whole = f"{digits} AND {integer} IS NOT NULL"
    exact = f"(NOT {digits} OR {integer} BETWEEN -{_EXACT} AND {_EXACT})"
    number = f"{number} AND isfinite(TRY_CAST({_pointed(text, decimal)} AS DOUBLE)) AND {exact}"
    day = f"regexp_full_match({text}, '{_DAY_TEXT}') AND TRY_CAST({text} AS DATE) IS NOT NULL"
    time = f"regexp_full_match({text}, '{_TIME_TEXT}') AND TRY_CAST({text} AS TIMESTAMP) IS NOT NULL"
    nested = "false"
    if kind == "JSON":
        truth = f"json_type({cell}) = 'BOOLEAN'"
        whole, number = (f"json_type({cell}) <> 'VARCHAR' AND {each}" for each in (whole, number))
        nested = f"json_type({cell}) IN ('OBJECT', 'ARRAY')"
    return [present, truth, whole, number, day, time, nested]


def _guessed(name: str, kind: str, counts: tuple[int, ...], decimal: str) -> ItemColumn | None:
    """The attribute of a column of texts or JSON: of the narrowest type that all its cells have."""
    present, truth, whole, number, day, time, nested = counts
    text = f"nullif({_text(name, kind)}, '')"
    if nested:
        return None
    if present and truth == present:
        return ItemColumn(name, pa.bool_(), f"lower({text}) = 'true'")
    if present and whole == present:
        return ItemColumn(name, pa.int64(), f"CAST({text} AS BIGINT)")
    if present and number == present:
        return ItemColumn(name, pa.float64(), f"CAST({_pointed(text, decimal)} AS DOUBLE)")
    if present and day == present:
        return ItemColumn(name, pa.date32(), f"CAST({text} AS DATE)")
    if present and day + time == present:
        return ItemColumn(name, pa.timestamp("us"), f"CAST({text} AS TIMESTAMP)")
    return ItemColumn(name, pa.string(), text)


def _pointed(text: str, decimal: str) -> str:
    """The SQL of a number with a decimal point."""
    return text if decimal == "." else f"replace({text}, '{decimal}', '.')"


def _text(name: str, kind: str) -> str:
    return f"({quoted(name)} ->> '$')" if kind == "JSON" else quoted(name)


def _finite(number: str) -> str:
    return f"CASE WHEN isfinite({number}) THEN {number} END"


def _without_nulls(texts: str) -> str:
    return f"list_filter({texts}, lambda entry: entry IS NOT NULL)"
