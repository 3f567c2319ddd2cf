"""Items with their titles and attributes: from a file or a table, or kept from an earlier dataset."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
        DataError: There is no such column, it holds fewer than half of the ids, or it is not named and
            several hold all ids or another one is the obvious one by its name.
    """
    columns = source.columns
    if named is not None:
        columns = [choose_column(source.name, columns, option, named)]
    total = tables.count(f"SELECT count(*) FROM ({ids})")
    found = {column: _num_found(tables, source, column, ids) for column in columns}
    key = max(columns, key=lambda column: found[column])
    obvious = find_column(columns, option, named) or key
    is_only = list(found.values()).count(total) == 1 and (obvious == key or not found[obvious])
    rule = f"must name the column with the {total:,} ids of the interactions, or most of them"
    is_clear = 2 * found[key] >= total if named is not None else is_only
    held = {column: number for column, number in found.items() if number}
    DataError.require(is_clear, rule, place=source.name, column=named, option=option, value=held or None)
    return key


def _num_found(tables: Tables, source: Source, column: str, ids: str) -> int:
    """Count the ids that a column of a source holds."""
    held = f"SELECT {quoted(column)} FROM {source.cells(tables.connection)}"
    try:
        return tables.count(f"SELECT count(*) FROM ({ids}) WHERE name IN ({held})")
    except duckdb.Error as error:
        raise mistake([Table(source, {"item": column})], reason_of(error)) from error


_STORED: tuple[tuple[str, pa.DataType, str], ...] = (
    (
        r"(?!STRUCT|MAP).*[^]]\[\]",
        pa.list_(pa.string()),
        "list_filter(CAST({} AS VARCHAR[]), lambda entry: entry IS NOT NULL)",
    ),
    ("BOOLEAN", pa.bool_(), "{}"),
    (r"U?(TINY|SMALL)INT|U?INTEGER|BIGINT", pa.int64(), "CAST({} AS BIGINT)"),
    (
        r"FLOAT|DOUBLE|DECIMAL.*",
        pa.float64(),
        "CASE WHEN isfinite(CAST({0} AS DOUBLE)) THEN CAST({0} AS DOUBLE) END",
    ),
    ("DATE", pa.date32(), "{}"),
    ("TIMESTAMP.*", pa.timestamp("us"), "make_timestamp(epoch_us({}))"),
    (r"VARCHAR|UUID|ENUM.*|\"NULL\"", pa.string(), "nullif(CAST({} AS VARCHAR), '')"),
)
"""The types of columns that attributes can have, each with the Arrow type and the SQL of the value."""
_LARGE = re.compile(r"UBIGINT|U?HUGEINT")
_WHOLE_TEXT = "-?(0|[1-9][0-9]*)"
_NUMBER_TEXT = r"-?(0|[1-9][0-9]*)([{}][0-9]+)?([eE][-+]?[0-9]+)?"
_DAY_TEXT = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME_TEXT = f"{_DAY_TEXT}([T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]+)?)?Z?)?"
"""A time of day without an offset, which a cast to TIMESTAMP would drop: such a column stays a text."""
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

    Raises:
        OptionError: The separator is empty.
    """

    decimal: str = "."
    separator: str | None = None

    def __post_init__(self) -> None:
        OptionError.require(self.separator != "", "must not be empty", option="items_separator")


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
    texts = {
        name: kind
        for name, kind in types.items()
        if kind == "JSON" or (source.text_file is not None and kind == "VARCHAR")
    }
    columns = {name: _typed(source, name, kind, connection) for name, kind in types.items()}
    columns |= _narrowest(source, texts, forms.decimal, connection)
    found = []
    for name, column in columns.items():
        if column is None:
            rule = f"must hold texts, numbers, booleans, dates or lists of texts; it holds {types[name]}"
            raise DataError(rule, place=source.name, column=name)
        found.append(_parted(source, column, forms.separator, connection))
    return found


def _parted(
    source: Source, column: ItemColumn, separator: str | None, connection: duckdb.DuckDBPyConnection
) -> ItemColumn:
    """The attribute with lists of texts if a text of it holds the separator, and as it is otherwise."""
    if separator is None or column.type != pa.string():
        return column
    mark = literal(separator)
    if not _first(connection, source, f"count_if(contains({column.value}, {mark}))"):
        return column
    texts = f"list_transform(string_split({column.value}, {mark}), lambda entry: trim(entry))"
    return ItemColumn(column.name, pa.list_(pa.string()), f"list_filter({texts}, lambda entry: entry <> '')")


def _first(connection: duckdb.DuckDBPyConnection, source: Source, aggregate: str) -> Any:
    """The value of an aggregate over the rows of a source."""
    [(value,)] = connection.execute(f"SELECT {aggregate} FROM {source.typed_rows(connection)}").fetchall()
    return value


def text_of(source: Source, column: str) -> str:
    """The SQL of a column of `source.typed_rows` as text, in the form of ids; NULL for an empty cell."""
    return f"nullif({_text(column, 'JSON')}, '')" if source.is_json else source.text(column)


def _typed(source: Source, name: str, kind: str, connection: duckdb.DuckDBPyConnection) -> ItemColumn | None:
    """An attribute of a column with a type; None if no attribute can have it.

    Whole numbers beyond 64 bits stay texts; so do the entries of lists.
    """
    cell = quoted(name)
    if _LARGE.fullmatch(kind):
        is_beyond = f"count_if({cell} IS NOT NULL AND TRY_CAST({cell} AS BIGINT) IS NULL)"
        kind = "VARCHAR" if _first(connection, source, is_beyond) else "BIGINT"
    if kind == "JSON[]":
        nested = f"list_filter({cell}, lambda entry: json_type(entry) IN ('OBJECT', 'ARRAY'))"
        if _first(connection, source, f"count_if(len({nested}) > 0)"):
            return None
        cell, kind = f"list_transform({cell}, lambda entry: entry ->> '$')", "VARCHAR[]"
    fitting = (each for each in _STORED if re.fullmatch(each[0], kind))
    return next((ItemColumn(name, stored, value.format(cell)) for _, stored, value in fitting), None)


def _narrowest(
    source: Source, kinds: Mapping[str, str], decimal: str, connection: duckdb.DuckDBPyConnection
) -> dict[str, ItemColumn | None]:
    """The attribute of each column of texts or JSON, of the narrowest type that all its cells have.

    None for a column with lists or objects.
    """
    tests = {name: _tests(name, kind, decimal) for name, kind in kinds.items()}
    counted = [f"count_if({test})" for each in tests.values() for test, _ in each]
    rows = source.typed_rows(connection)
    counts = iter(
        connection.execute(f"SELECT {', '.join(counted)} FROM {rows}").fetchall()[0] if kinds else ()
    )
    found: dict[str, ItemColumn | None] = {}
    for name, each in tests.items():
        (num_present, text), (num_nested, _), *others = [(next(counts), column) for _, column in each]
        fitting = (column for number, column in others if number == num_present and number)
        found[name] = None if num_nested else next(fitting, text)
    return found


def _tests(name: str, kind: str, decimal: str) -> list[tuple[str, ItemColumn | None]]:
    """The SQL conditions that a cell is present, is nested, and has each type, with the attribute then."""
    cell, text = quoted(name), _text(name, kind)
    pointed = text if decimal == "." else f"replace({text}, '{decimal}', '.')"
    number = f"regexp_full_match({text}, '{_NUMBER_TEXT.format(decimal)}')"
    digits, integer = f"regexp_full_match({text}, '{_WHOLE_TEXT}')", f"TRY_CAST({text} AS BIGINT)"
    is_whole = f"{digits} AND {integer} IS NOT NULL"
    is_exact = f"(NOT {digits} OR {integer} BETWEEN -{_EXACT} AND {_EXACT})"
    is_number = f"{number} AND isfinite(TRY_CAST({pointed} AS DOUBLE)) AND {is_exact}"
    is_true, is_nested = f"lower({text}) IN ('true', 'false')", "false"
    if kind == "JSON":
        is_true, is_nested = f"json_type({cell}) = 'BOOLEAN'", f"json_type({cell}) IN ('OBJECT', 'ARRAY')"
        is_whole, is_number = (f"json_type({cell}) <> 'VARCHAR' AND {each}" for each in (is_whole, is_number))
    shown = f"nullif({text}, '')"
    tests: list[tuple[str, ItemColumn | None]] = [
        (f"coalesce({text}, '') <> ''", ItemColumn(name, pa.string(), shown)),
        (is_nested, None),
        (is_true, ItemColumn(name, pa.bool_(), f"lower({shown}) = 'true'")),
        (is_whole, ItemColumn(name, pa.int64(), f"CAST({shown} AS BIGINT)")),
        (is_number, ItemColumn(name, pa.float64(), f"CAST(nullif({pointed}, '') AS DOUBLE)")),
    ]
    for pattern, stored, sql in (
        (_DAY_TEXT, pa.date32(), "DATE"),
        (_TIME_TEXT, pa.timestamp("us"), "TIMESTAMP"),
    ):
        is_one = f"regexp_full_match({text}, '{pattern}') AND TRY_CAST({text} AS {sql}) IS NOT NULL"
        tests.append((is_one, ItemColumn(name, stored, f"CAST({shown} AS {sql})")))
    return tests


def _text(name: str, kind: str) -> str:
    return f"({quoted(name)} ->> '$')" if kind == "JSON" else quoted(name)


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
        title, cells = quoted(self.text), source.cells(tables.connection)
        texts = f"min({title}) AS title, max({title}) AS other"
        rows = f"SELECT {quoted(key)} AS key, {texts} FROM {cells} GROUP BY 1"
        try:
            tables.connection.execute(f"INSERT INTO titles SELECT key, title FROM ({rows})")
            first = f"SELECT key FROM ({rows}) WHERE title < other ORDER BY 1 LIMIT 1"
            twice = tables.connection.execute(first).fetchone()
        except duckdb.Error as error:
            raise mistake([Table(source, {"item": key})], reason_of(error)) from error
        if twice is not None:
            raise DataError(
                "an item must have one title", place=source.name, column=self.text, value=twice[0]
            )
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
            if not columns or len(set(columns)) < len(columns) or name in self.sparse:
                rule = f'must name different columns, and for "{name}" be the only option'
                raise OptionError(rule, option="items_dense", value=list(columns))
        OptionError.require(self.dense or not self.normalize, "needs `items_dense`", option="normalize")

    def check_columns(self, place: str, known: Sequence[str]) -> None:
        """Raise DataError unless all columns to describe by are among those with attributes."""
        for column in [
            *self.sparse.values(),
            *(column for columns in self.dense.values() for column in columns),
        ]:
            if column not in known:
                rule = f"is no attribute of the items.{did_you_mean(column, known)}"
                raise DataError(rule, place=place, column=column)


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
            self.descriptions.check_columns(source.name, [column.name for column in columns])
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
