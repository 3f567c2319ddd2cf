"""Items with their titles and attributes: from a file or a table, or kept from an earlier dataset."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from widenet.data.attributes import Attributes, aside_file, aside_schema, attributes_file, kinds_of
from widenet.data.columns import choose_column, find_column, literal, quoted
from widenet.data.described import Described, described_file, write_descriptions
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.known import KnownFeatures
from widenet.data.source import Scan, Source, mistake
from widenet.data.tables import Tables
from widenet.data.writer import ROWS_PER_BATCH, rebatched
from widenet.errors import DataError, OptionError, reason_of
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
    columns = source.columns if named is None else [choose_column(source.name, source.columns, option, named)]
    total = tables.count(f"SELECT count(*) FROM ({ids})")
    found = {}
    for column in columns:
        held = f"SELECT {quoted(column)} FROM {source.cells(tables.connection)}"
        try:
            found[column] = tables.count(f"SELECT count(*) FROM ({ids}) WHERE name IN ({held})")
        except duckdb.Error as error:
            raise mistake([replace(source, roles={"item": column})], reason_of(error)) from error
    key = max(columns, key=found.__getitem__)
    obvious = find_column(columns, option, named) or key
    is_clear = [*found.values()].count(total) == 1 and (obvious == key or not found[obvious])
    if named is not None:
        is_clear = 2 * found[key] >= total
    rule = f"must name the column with the {total:,} ids of the interactions, or most of them"
    held_ids = {column: number for column, number in found.items() if number}
    DataError.require(is_clear, rule, place=source.name, column=named, option=option, value=held_ids or None)
    return key


_LIST = pa.list_(pa.string())
_STORED: tuple[tuple[str, pa.DataType, str], ...] = (
    (
        r"(?!STRUCT|MAP).*[^]]\[\]",
        _LIST,
        "list_filter(CAST({0} AS VARCHAR[]), lambda entry: entry IS NOT NULL)",
    ),
    ("BOOLEAN", pa.bool_(), "{0}"),
    (r"U?(TINY|SMALL)INT|U?INTEGER|BIGINT", pa.int64(), "CAST({0} AS BIGINT)"),
    (
        r"FLOAT|DOUBLE|DECIMAL.*",
        pa.float64(),
        "CASE WHEN isfinite(CAST({0} AS DOUBLE)) THEN CAST({0} AS DOUBLE) END",
    ),
    ("DATE", pa.date32(), "{0}"),
    ("TIMESTAMP.*", pa.timestamp("us"), "make_timestamp(epoch_us({0}))"),
)
"""The types of columns that are attributes as they are, each with the Arrow type and the SQL of the value."""
_TEXT = re.compile(r'JSON|VARCHAR|UUID|ENUM.*|"NULL"|UBIGINT|U?HUGEINT')
"""The types of columns that become texts, unless all their cells are something narrower."""
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


def columns_of(
    source: Source, without: set[str], separator: str | None, connection: duckdb.DuckDBPyConnection
) -> list[ItemColumn]:
    """Find the attributes of a source and their types.

    Columns of CSV and values of JSON are numbers, booleans or dates if all of them are; a text with zeros in
    front is no number. Nor is a whole number that would lose digits: one beyond 64 bits, or one above 2^53 in
    a column of fractions.

    Args:
        source: The source.
        without: Columns that are no attributes.
        separator: Separates the texts of a list in a cell; None if no cell holds several.
        connection: The database.

    Raises:
        DataError: A column holds objects or other values that no attribute can have.
        duckdb.Error: The source cannot be read.
    """
    rows = source.table(connection, Scan())
    types = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE SELECT * FROM {rows}").fetchall()}
    named = {name: str(types[name]) for name in source.columns if name not in without}
    choices = {name: _choices(source, name, kind, separator) for name, kind in named.items()}
    tests = [test for each in choices.values() for test, _ in each]
    [results] = connection.execute(f"SELECT {', '.join(['count(*)', *tests])} FROM {rows}").fetchall()
    fits, columns = iter(results[1:]), []
    for name, each in choices.items():
        fitting = [column for (_, column), is_so in zip(each, islice(fits, len(each)), strict=True) if is_so]
        if not fitting or fitting[0] is None:
            rule = f"must hold texts, numbers, booleans, dates or lists of texts; it holds {named[name]}"
            raise DataError(rule, place=source.name, column=name)
        columns.append(fitting[0])
    return columns


def _choices(
    source: Source, name: str, kind: str, separator: str | None
) -> list[tuple[str, ItemColumn | None]]:
    """What a column may become, best first, each with the SQL aggregate that decides; None is a refusal."""
    cell = quoted(name)
    for pattern, stored, value in _STORED if kind != "JSON[]" else ():
        if re.fullmatch(pattern, kind):
            return [("true", ItemColumn(name, stored, value.format(cell)))]
    nested = "IN ('OBJECT', 'ARRAY')"
    if kind == "JSON[]":
        is_nested = f"bool_or(len(list_filter({cell}, lambda entry: json_type(entry) {nested})) > 0)"
        texts = f"list_filter(list_transform({cell}, lambda x: x ->> '$'), lambda x: x IS NOT NULL)"
        return [(is_nested, None), ("true", ItemColumn(name, _LIST, texts))]
    if not _TEXT.fullmatch(kind):
        return []
    choices: list[tuple[str, ItemColumn | None]] = []
    raw = f"{cell} ->> '$'" if kind == "JSON" else f"CAST({cell} AS VARCHAR)"
    text = f"nullif({raw}, '')"
    if kind == "JSON":
        choices.append((f"bool_or(json_type({cell}) {nested})", None))
    if kind == "JSON" or source.text_file is not None or kind.endswith(("BIGINT", "HUGEINT")):
        choices += _narrower(name, kind, text, source.decimal)
    if separator is not None:
        mark = literal(separator)
        texts = f"list_transform(string_split({text}, {mark}), lambda entry: trim(entry))"
        entries = f"list_filter({texts}, lambda entry: entry <> '')"
        choices.append((f"bool_or(contains({text}, {mark}))", ItemColumn(name, _LIST, entries)))
    return [*choices, ("true", ItemColumn(name, pa.string(), text))]


def _narrower(name: str, kind: str, text: str, decimal: str) -> list[tuple[str, ItemColumn | None]]:
    """The narrower types that a column of texts may have, as `_choices`."""
    pointed = text if decimal == "." else f"replace({text}, '{decimal}', '.')"
    number = f"regexp_full_match({text}, '{_NUMBER_TEXT.format(decimal)}')"
    digits, integer = f"regexp_full_match({text}, '{_WHOLE_TEXT}')", f"TRY_CAST({text} AS BIGINT)"
    is_exact = f"(NOT {digits} OR {integer} BETWEEN -{_EXACT} AND {_EXACT})"
    is_typed = f"json_type({quoted(name)}) <> 'VARCHAR'" if kind == "JSON" else "true"
    tests = [
        (f"lower({text}) IN ('true', 'false')", pa.bool_(), f"lower({text}) = 'true'"),
        (f"{digits} AND {integer} IS NOT NULL", pa.int64(), f"CAST({text} AS BIGINT)"),
        (
            f"{number} AND isfinite(TRY_CAST({pointed} AS DOUBLE)) AND {is_exact}",
            pa.float64(),
            f"CAST({pointed} AS DOUBLE)",
        ),
    ]
    tests = [(f"{is_typed} AND {test}", stored, value) for test, stored, value in tests]
    for pattern, stored, sql in (
        (_DAY_TEXT, pa.date32(), "DATE"),
        (_TIME_TEXT, pa.timestamp("us"), "TIMESTAMP"),
    ):
        is_one = f"regexp_full_match({text}, '{pattern}') AND TRY_CAST({text} AS {sql}) IS NOT NULL"
        tests.append((is_one, stored, f"CAST({text} AS {sql})"))
    return [
        (f"bool_and(coalesce({test}, false)) FILTER ({text} IS NOT NULL)", ItemColumn(name, stored, value))
        for test, stored, value in tests
    ]


def read_titles(tables: Tables, source: Source, options: IngestArguments) -> str:
    """Fill the table `titles`, and describe in one line how the source was read.

    Raises:
        DataError: No column is that of the ids, or a row cannot be read.
    """
    text = choose_column(source.name, source.columns, "title", options.title)
    key = id_column(tables, source, "title_id", options.title_id, ITEMS_OF_SOURCES)
    title, cells = quoted(text), source.cells(tables.connection)
    texts = f"min({title}) AS title, max({title}) AS other"
    rows = f"SELECT {quoted(key)} AS key, {texts} FROM {cells} GROUP BY 1"
    try:
        tables.connection.execute(f"INSERT INTO titles SELECT key, title FROM ({rows})")
        first = f"SELECT key FROM ({rows}) WHERE title < other ORDER BY 1 LIMIT 1"
        twice = tables.connection.execute(first).fetchone()
    except duckdb.Error as error:
        raise mistake([replace(source, roles={"item": key})], reason_of(error)) from error
    if twice is not None:
        raise DataError("an item must have one title", place=source.name, column=text, value=twice[0])
    titled = "SELECT count(*) FROM features JOIN titles USING (name) WHERE titles.title IS NOT NULL"
    short_name = source.name.rpartition("/")[2]
    tables.facts |= {"titles": short_name, "items_with_title": tables.count(titled)}
    return f"reading titles in {short_name}: title-id = {key}, title = {text}"


_ROWS = "item_rows"
_STORED_AS = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64()}
"""Numbers that stand for dates; Python's own dates are slow to make."""


def check_item_options(options: IngestArguments) -> None:
    """Raise OptionError if a description has no column or no valid name, or two have the same name."""
    OptionError.require(options.items_separator != "", "must not be empty", option="items_separator")
    sparse, dense = options.items_sparse or {}, options.items_dense or {}
    for option, named in (("items_sparse", sparse), ("items_dense", dense)):
        for name in named:
            is_name = len(name) <= LONGEST_NAME and re.fullmatch(NAME_PATTERN, name)
            rule = (
                f'must give names of 1 to {LONGEST_NAME} characters without "/", "\\" and control characters'
            )
            OptionError.require(is_name, rule, option=option, value=name)
    for name, columns in dense.items():
        is_one = columns and len(set(columns)) == len(columns) and name not in sparse
        rule = f'must name different columns, and for "{name}" be the only option'
        OptionError.require(is_one, rule, option="items_dense", value=list(columns))
    OptionError.require(dense or not options.normalize, "needs `items_dense`", option="normalize")


def read_items(
    tables: Tables, source: Source, options: IngestArguments, known_only: bool
) -> tuple["ItemRows", str]:
    """Read all rows, and add their titles to the table `titles`; described items become features.

    Args:
        tables: The tables.
        source: A file or a table.
        options: The options; with `titles`, titles come from there.
        known_only: Whether an earlier vocabulary takes no new features.

    Returns:
        The rows, and a line about how the source was read.

    Raises:
        DataError: No column is that of the ids, a row has no id, an id repeats, or a column holds what no
            attribute can have.
    """
    key = id_column(tables, source, "items_id", options.items_id, ITEMS_OF_SOURCES)
    title = None
    if options.titles is None:
        others = [column for column in source.columns if column != key]
        title = find_column(others, "items_title", options.items_title)
    described = [*(options.items_sparse or {}).values()]
    described += chain.from_iterable((options.items_dense or {}).values())
    try:
        columns = columns_of(source, {key, title or key}, options.items_separator, tables.connection)
        for column in described:
            is_one = column in {each.name for each in columns}
            DataError.require(is_one, "is no attribute of the items", place=source.name, column=column)
        titles = "NULL" if title is None else source.text(title)
        values = "".join(f", {column.value} AS a{place}" for place, column in enumerate(columns))
        tables.connection.execute(
            f"CREATE TABLE {_ROWS} AS SELECT {source.text(key)} AS name, CAST({titles} AS VARCHAR) AS"
            f" title{values} FROM {source.table(tables.connection, Scan())}"
        )
    except duckdb.Error as error:
        raise mistake([replace(source, roles={"item": key})], reason_of(error)) from error
    if tables.count(f"SELECT count(*) FROM {_ROWS} WHERE name IS NULL"):
        raise mistake([replace(source, roles={"item": key})], "a row has no id")
    twice = f"SELECT name FROM {_ROWS} GROUP BY name HAVING count(*) > 1 ORDER BY name LIMIT 1"
    for (name,) in tables.connection.execute(twice).fetchall():
        raise DataError("must hold every item once", place=source.name, column=key, value=name)
    if described and not known_only:
        _add_features(tables)
    titled = f"SELECT name, title FROM {_ROWS} WHERE title IS NOT NULL"
    tables.connection.execute(f"INSERT INTO titles {titled}")
    short_name = source.name.rpartition("/")[2]
    tables.facts["items"] = short_name
    if title is not None:
        counted = f"SELECT count(*) FROM features JOIN ({titled}) USING (name)"
        tables.facts["items_with_title"] = tables.count(counted)
    schema = pa.schema([(column.name, column.type) for column in columns])
    kinds = ", ".join(f"{name} ({kind})" for name, kind in kinds_of(schema).items())
    line = f"reading items in {short_name}: items-id = {key}{'' if title is None else f', title = {title}'}"
    return ItemRows(tables, schema, short_name, options), f"{line}; attributes: {kinds or 'none'}"


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
    schema = attributes.table.schema
    names = ["name", "title", *(f"a{place}" for place in range(len(schema)))]
    rows = [[vocabulary.all_ids(), pa.nulls(len(attributes), pa.string()), *attributes.table.columns]]
    for batch in known.aside(field_name, schema):
        rows.append([batch.column("id"), batch.column("title"), *batch.column("attributes").flatten()])
    whole = pa.concat_tables(pa.Table.from_arrays(columns, names) for columns in rows)
    tables.connection.register("rows_of_items", whole)
    tables.connection.execute(f"CREATE TABLE {_ROWS} AS SELECT * FROM rows_of_items")
    titled = f"SELECT name, title FROM {_ROWS} WHERE title IS NOT NULL"
    tables.connection.execute(f"INSERT INTO titles SELECT * FROM ({titled}) ANTI JOIN titles USING (name)")
    return ItemRows(tables, schema)


@dataclass(frozen=True)
class ItemRows:
    """All items of a source, features or not, with the types of their attributes.

    Attributes:
        tables: The tables.
        schema: The Arrow types of the attributes.
        source: Name of the source in messages.
        options: The options, which say what to describe items by; None for items of an earlier dataset.
    """

    tables: Tables
    schema: pa.Schema
    source: str = ""
    options: IngestArguments | None = None

    def described(self, folder: Path, field_name: str) -> Described | None:
        """Write the descriptions of features, after `written`, into a file of the folder.

        Returns:
            The descriptions; None without any.

        Raises:
            DataError: A column does not exist, or holds something else.
        """
        if self.options is None or not (self.options.items_sparse or self.options.items_dense):
            return None
        tables, options = self.tables, self.options
        counts = np.zeros(tables.count("SELECT count(*) FROM features"), dtype=np.int64)
        for batch in tables.stream("SELECT feature, coalesce(count, 0) AS n FROM features", ROWS_PER_BATCH):
            counts[batch.column("feature").to_numpy()] = batch.column("n").to_numpy()
        return write_descriptions(
            folder / described_file(field_name),
            Attributes.open(folder / attributes_file(field_name), len(counts)),
            options.items_sparse or {},
            options.items_dense or {},
            counts if options.normalize else None,
            self.source,
        )

    def written(self, folder: Path, field_name: str) -> list[Path]:
        """Write the attributes of features, and of the items that are none, each into a file of a folder.

        Returns:
            The files; none without attributes.
        """
        if not len(self.schema):
            return []
        tables, places = self.tables, range(len(self.schema))
        columns = "".join(f", a{place}" for place in places)
        paths = [folder / attributes_file(field_name)]
        features = f"SELECT name, NULL{columns} FROM features LEFT JOIN {_ROWS} USING (name) ORDER BY feature"
        self._write(paths[0], features, is_aside=False)
        some = " OR ".join(f"a{place} IS NOT NULL" for place in places)
        with_attributes = f"SELECT count(*) FROM features JOIN {_ROWS} USING (name) WHERE {some}"
        tables.facts["items_with_attributes"] = tables.count(with_attributes)
        others = f"FROM {_ROWS} ANTI JOIN features USING (name)"
        tables.facts["items_aside"] = tables.count(f"SELECT count(*) {others}")
        if tables.facts["items_aside"]:
            paths.append(folder / aside_file(field_name))
            order = tables.order(f"SELECT name {others}")
            self._write(paths[1], f"SELECT name, title{columns} {others} ORDER BY {order}", is_aside=True)
        return paths

    def _write(self, path: Path, query: str, is_aside: bool) -> None:
        """Write attributes into a file, in bytes that depend on their values alone.

        Args:
            path: The file.
            query: Gives an id, a title and the attributes.
            is_aside: Whether to write `aside_schema`.
        """
        schema = aside_schema(self.schema) if is_aside else self.schema

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self.tables.stream(query, ROWS_PER_BATCH):
                columns = []
                for array, column in zip(batch.columns[2:], self.schema, strict=True):
                    # DuckDB leaves any value below a null.
                    stored = _STORED_AS.get(column.type, column.type)
                    values = array.cast(column.type).cast(stored).to_pylist()
                    columns.append(pa.array(values, stored).cast(column.type))
                if is_aside:
                    attributes = pa.StructArray.from_arrays(columns, fields=list(self.schema))
                    columns = [*batch.columns[:2], attributes]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in rebatched(batches(), schema, ROWS_PER_BATCH):
                writer.write_batch(batch)
