"""Items with their titles and attributes: from a file or a table, or kept from an earlier dataset."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from widenet.data.attributes import Attributes, aside_file, aside_schema, attributes_file, kinds_of
from widenet.data.columns import choose_column, find_column, literal, quoted
from widenet.data.described import Described, described_file, write_descriptions
from widenet.data.known import KnownFeatures
from widenet.data.source import Source, Table, mistake
from widenet.data.tables import Tables
from widenet.data.writer import ROWS_PER_BATCH, rebatched
from widenet.errors import DataError, OptionError, did_you_mean, reason_of
from widenet.spec.parts import LONGEST_NAME, NAME_PATTERN

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
        DataError: There is no such column, several columns hold all ids, it is not the one that its name
            makes obvious, or it holds fewer than half of the ids.
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
    obvious = find_column(columns, option, named) or key
    if obvious != key and found[obvious]:
        rule = f'must name the column of ids: "{obvious}" holds {found[obvious]:,} of {total:,}, "{key}" all'
        raise DataError(rule, place=source.name, option=option)
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


@dataclass(frozen=True)
class Titles:
    """A source of titles, with its column of titles, and that of ids if it was named."""

    source: Source
    item: str | None
    text: str

    def read(self, tables: Tables) -> str:
        """Fill the table `titles`, and describe in one line how the source was read.

        Raises:
            DataError: No column is that of the ids, or a row cannot be read.
        """
        source = self.source
        key = id_column(tables, source, "title_id", self.item, ITEMS_OF_SOURCES)
        columns = f"{quoted(key)}, min({quoted(self.text)})"
        try:
            tables.connection.execute(
                f"INSERT INTO titles SELECT {columns} FROM {source.cells(tables.connection)} GROUP BY 1"
            )
        except duckdb.Error as error:
            raise mistake([Table(source, {"item": key})], reason_of(error)) from error
        titled = "SELECT count(*) FROM features JOIN titles USING (name) WHERE titles.title IS NOT NULL"
        short_name = source.name.rpartition("/")[2]
        tables.facts |= {"titles": short_name, "items_with_title": tables.count(titled)}
        return f"reading titles in {short_name}: title-id = {key}, title = {self.text}"


_ROWS = "item_rows"
_STORED_AS = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64()}
"""Numbers that stand for dates; Python's own dates are slow to make."""


@dataclass(frozen=True)
class Descriptions:
    """The descriptions of items to make for networks.

    Attributes:
        sparse: Names of descriptions by categories, each with its column.
        dense: Names of descriptions by numbers, each with its columns.
        normalize: Whether to normalize numbers over the items of training.

    Raises:
        OptionError: A description has no column or no valid name, or two have the same name.
    """

    sparse: Mapping[str, str] = field(default_factory=dict)
    dense: Mapping[str, Sequence[str]] = field(default_factory=dict)
    normalize: bool = False

    def __bool__(self) -> bool:
        return bool(self.sparse or self.dense)

    def __post_init__(self) -> None:
        for option, named in (("items_sparse", self.sparse), ("items_dense", self.dense)):
            for name in named:
                if len(name) > LONGEST_NAME or not re.fullmatch(NAME_PATTERN, name):
                    rule = f'text without "/", "\\" and control characters, of 1 to {LONGEST_NAME} characters'
                    raise OptionError(f"`{option}`: a name must be {rule}; got {name!r}.")
        for name, columns in self.dense.items():
            if not columns:
                raise OptionError(f'`items_dense` must name a column or more for "{name}"; got none.')
            twice = next((column for column in columns if columns.count(column) > 1), None)
            if twice is not None:
                rule = f'must name each column of "{name}" once; got "{twice}" twice'
                raise OptionError(f"`items_dense` {rule}.")
            if name in self.sparse:
                rule = f'must make a description of another name; `items_sparse` has "{name}"'
                raise OptionError(f"`items_dense` {rule}.")
        if self.normalize and not self.dense:
            raise OptionError("`normalize` needs `items_dense`.")

    def check_columns(self, place: str, known: Sequence[str], taken: Mapping[str | None, str]) -> None:
        """Raise DataError unless all columns to describe by are attributes.

        Args:
            place: Name of the source.
            known: Columns with attributes.
            taken: The other columns that are read, each with what it holds.
        """
        named = [*self.sparse.values(), *(column for columns in self.dense.values() for column in columns)]
        for column in named:
            if column in taken:
                rule = f"holds the {taken[column]} of the items, which is no attribute"
                raise DataError(f'{place}: column "{column}" {rule}.{did_you_mean("", known)}')
            if column not in known:
                raise DataError(f'{place}: column "{column}" does not exist.{did_you_mean(column, known)}')


@dataclass(frozen=True)
class Items:
    """A source of items with their attributes.

    Attributes:
        source: A file or a table.
        item: Column with the ids of the items, if it was named.
        title: Column with the titles, if it was named.
        has_titles: Whether titles come from elsewhere, so that this source has none.
        forms: How cells are written.
        descriptions: What to describe items by.
    """

    source: Source
    item: str | None
    title: str | None
    has_titles: bool
    forms: Forms
    descriptions: Descriptions

    def __post_init__(self) -> None:
        for role, column in (("items_id", self.item), ("items_title", self.title)):
            if column is not None:
                choose_column(self.source.name, self.source.columns, role, column)

    def read(self, tables: Tables, known_only: bool) -> tuple["ItemRows", str]:
        """Read all rows, and add their titles to the table `titles`; described items become features.

        Args:
            tables: The tables.
            known_only: Whether an earlier vocabulary takes no new features.

        Returns:
            The rows, and a line about how the source was read.

        Raises:
            DataError: No column is that of the ids, a row has no id, an id repeats, or a column holds what no
                attribute can have.
        """
        source = self.source
        key = id_column(tables, source, "items_id", self.item, ITEMS_OF_SOURCES)
        title = self._title(key)
        try:
            columns = columns_of(source, {key, title or key}, self.forms, tables.connection)
            self.descriptions.check_columns(
                source.name, [column.name for column in columns], {key: "id", title: "title"}
            )
            titles = "NULL" if title is None else text_of(source, title)
            values = "".join(f", {column.value} AS a{place}" for place, column in enumerate(columns))
            tables.connection.execute(
                f"CREATE TABLE {_ROWS} AS SELECT {text_of(source, key)} AS name, CAST({titles} AS VARCHAR) AS"
                f" title{values} FROM {source.typed_rows(tables.connection)}"
            )
        except duckdb.Error as error:
            raise mistake([Table(source, {"item": key})], reason_of(error)) from error
        self._check(tables, key)
        if self.descriptions and not known_only:
            _add_features(tables)
        titled = f"SELECT name, title FROM {_ROWS} WHERE title IS NOT NULL"
        tables.connection.execute(f"INSERT INTO titles {titled}")
        short_name = source.name.rpartition("/")[2]
        tables.facts["items"] = short_name
        if title is not None:
            tables.facts["items_with_title"] = tables.count(
                f"SELECT count(*) FROM features JOIN ({titled}) USING (name)"
            )
        schema = pa.schema([(column.name, column.type) for column in columns])
        line = (
            f"reading items in {short_name}: items-id = {key}{'' if title is None else f', title = {title}'}"
        )
        kinds = ", ".join(f"{name} ({kind})" for name, kind in kinds_of(schema).items())
        rows = ItemRows(tables, schema, self.descriptions, short_name)
        return rows, f"{line}; attributes: {kinds or 'none'}"

    def _title(self, key: str) -> str | None:
        """The column of titles, if there is one."""
        if self.title is not None:
            return choose_column(self.source.name, self.source.columns, "items_title", self.title)
        if self.has_titles:
            return None
        return find_column([each for each in self.source.columns if each != key], "items_title", None)

    def _check(self, tables: Tables, key: str) -> None:
        if tables.count(f"SELECT count(*) FROM {_ROWS} WHERE name IS NULL"):
            raise mistake([Table(self.source, {"item": key})], "a row has no id")
        repeated = tables.connection.execute(
            f"SELECT name, count(*) FROM {_ROWS} GROUP BY name HAVING count(*) > 1 ORDER BY name LIMIT 1"
        ).fetchone()
        if repeated is not None:
            rule = f'must hold every item once; it holds "{repeated[0]}" {repeated[1]:,} times'
            raise DataError(rule, place=self.source.name, column=key)


def _add_features(tables: Tables) -> None:
    """Append the items that no source has to the table `features`, without interactions."""
    names = f"SELECT name FROM {_ROWS} ANTI JOIN features USING (name) ANTI JOIN items USING (name)"
    before = tables.count("SELECT count(*) FROM features")
    number = f"row_number() OVER (ORDER BY {tables.order(names)}) - 1"
    tables.connection.execute(
        "INSERT INTO features BY NAME SELECT name, 0 AS count,"
        f" CAST({before} + {number} AS UINTEGER) AS feature FROM ({names})"
    )
    added = tables.count("SELECT count(*) FROM features") - before
    tables.facts["items_without_interactions"] = added


def known_items(tables: Tables, known: KnownFeatures, field_name: str) -> "ItemRows | None":
    """Read the items that an earlier dataset has attributes of, also those that it kept aside.

    The titles of items that it kept aside are added to the table `titles`.
    """
    attributes, vocabulary = known.attributes(field_name), known.of(field_name)
    if attributes is None or vocabulary is None:
        return None
    schema, start = attributes.schema, 0
    rows = _row_schema(schema)
    tables.connection.register("rows_of_items", rows.empty_table())
    tables.connection.execute(f"CREATE TABLE {_ROWS} AS SELECT * FROM rows_of_items")
    for batch in attributes.record_batches():
        ids = vocabulary.all_ids().slice(start, batch.num_rows)
        _insert(tables, rows, [ids, pa.nulls(batch.num_rows, pa.string()), *batch.columns])
        start += batch.num_rows
    for batch in known.aside(field_name, schema):
        _insert(
            tables, rows, [batch.column("id"), batch.column("title"), *batch.column("attributes").flatten()]
        )
    titled = f"SELECT name, title FROM {_ROWS} WHERE title IS NOT NULL"
    tables.connection.execute(f"INSERT INTO titles SELECT * FROM ({titled}) ANTI JOIN titles USING (name)")
    return ItemRows(tables, schema)


def _row_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of the table of all items: name, title, and a0, a1, ... for the attributes."""
    columns = [(f"a{place}", column.type) for place, column in enumerate(schema)]
    return pa.schema([("name", pa.string()), ("title", pa.string()), *columns])


def _insert(tables: Tables, rows: pa.Schema, columns: list[pa.Array]) -> None:
    tables.connection.register("rows_of_items", pa.Table.from_arrays(columns, schema=rows))
    tables.connection.execute(f"INSERT INTO {_ROWS} SELECT * FROM rows_of_items")


@dataclass(frozen=True)
class ItemRows:
    """All items of a source, features or not, with the types of their attributes."""

    tables: Tables
    schema: pa.Schema
    descriptions: Descriptions = field(default_factory=Descriptions)
    source: str = ""

    def described(self, folder: Path, field_name: str) -> Described | None:
        """Write the descriptions of features, after `written`, into a file of the folder.

        Returns:
            The descriptions; None without any.

        Raises:
            DataError: A column does not exist, or holds something else.
        """
        if not self.descriptions:
            return None
        path, tables = folder / described_file(field_name), self.tables
        counts = np.zeros(tables.count("SELECT count(*) FROM features"), dtype=np.int64)
        for batch in tables.stream("SELECT feature, coalesce(count, 0) AS n FROM features", ROWS_PER_BATCH):
            counts[batch.column("feature").to_numpy()] = batch.column("n").to_numpy()
        attributes = Attributes.open(folder / attributes_file(field_name), len(counts))
        made, over = self.descriptions, counts if self.descriptions.normalize else None
        return write_descriptions(path, attributes, made.sparse, made.dense, over, self.source)

    def written(self, folder: Path, field_name: str) -> list[Path]:
        """Write the attributes of features, and of the items that are none, each into a file of a folder.

        Returns:
            The files; none without attributes.
        """
        if not len(self.schema):
            return []
        columns = "".join(f", a{place}" for place in range(len(self.schema)))
        paths = [folder / attributes_file(field_name)]
        features = f"SELECT name{columns} FROM features LEFT JOIN {_ROWS} USING (name) ORDER BY feature"
        _write(paths[0], self.schema, self._attributes(features))
        others = f"FROM {_ROWS} ANTI JOIN features USING (name)"
        tables = self.tables
        some = " OR ".join(f"a{place} IS NOT NULL" for place in range(len(self.schema)))
        with_attributes = f"SELECT count(*) FROM features JOIN {_ROWS} USING (name) WHERE {some}"
        tables.facts["items_with_attributes"] = tables.count(with_attributes)
        tables.facts["items_aside"] = num_aside = tables.count(f"SELECT count(*) {others}")
        if num_aside:
            paths.append(folder / aside_file(field_name))
            order = tables.order(f"SELECT name {others}")
            _write(
                paths[1],
                aside_schema(self.schema),
                self._aside(f"SELECT name, title{columns} {others} ORDER BY {order}"),
            )
        return paths

    def _attributes(self, query: str) -> Iterator[pa.RecordBatch]:
        for batch in self.tables.stream(query, ROWS_PER_BATCH):
            yield pa.RecordBatch.from_arrays(_canonical(batch.columns[1:], self.schema), schema=self.schema)

    def _aside(self, query: str) -> Iterator[pa.RecordBatch]:
        schema = aside_schema(self.schema)
        for batch in self.tables.stream(query, ROWS_PER_BATCH):
            columns = _canonical(batch.columns[2:], self.schema)
            attributes = pa.StructArray.from_arrays(columns, fields=list(self.schema))
            yield pa.RecordBatch.from_arrays([batch.column(0), batch.column(1), attributes], schema=schema)


def _canonical(arrays: Sequence[pa.Array], schema: pa.Schema) -> list[pa.Array]:
    """Attributes in bytes that depend on their values alone: DuckDB leaves any value below a null."""
    canonical = []
    for array, column in zip(arrays, schema, strict=True):
        stored = _STORED_AS.get(column.type, column.type)
        canonical.append(pa.array(array.cast(column.type).cast(stored).to_pylist(), stored).cast(column.type))
    return canonical


def _write(path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in rebatched(batches, schema, ROWS_PER_BATCH):
            writer.write_batch(batch)
