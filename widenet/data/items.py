"""Items with their attributes: from a file or a table, or kept from an earlier dataset."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from widenet.data.attributes import Attributes, aside_file, aside_schema, attributes_file, kinds_of
from widenet.data.columns import choose_column, find_column
from widenet.data.described import Described, described_file, write_descriptions
from widenet.data.item_columns import ITEMS_OF_SOURCES, Forms, columns_of, id_column, text_of
from widenet.data.known import KnownFeatures
from widenet.data.read import open_source
from widenet.data.source import Reading, Source, Table, mistake
from widenet.data.tables import Tables
from widenet.data.writer import ROWS_PER_BATCH, rebatched
from widenet.errors import DataError, OptionError, did_you_mean, reason_of
from widenet.spec.parts import LONGEST_NAME, NAME_PATTERN

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
    """

    sparse: Mapping[str, str] = field(default_factory=dict)
    dense: Mapping[str, Sequence[str]] = field(default_factory=dict)
    normalize: bool = False

    def __bool__(self) -> bool:
        return bool(self.sparse or self.dense)

    def check(self, items: object) -> None:
        """Raise OptionError for descriptions without a source of items or a column, or two of one name."""
        for option, named in (("items_sparse", self.sparse), ("items_dense", self.dense)):
            if named and items is None:
                raise OptionError(f"`{option}` needs `items`.")
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
    """A source of items with their attributes, if there is one.

    Attributes:
        items: A file or a table; None if there is none.
        item: Column with the ids of the items.
        title: Column with the titles.
        reading: How to read the source.
        has_titles: Whether titles come from elsewhere, so that this source has none.
        forms: How cells are written.
        descriptions: What to describe items by.

    Raises:
        OptionError: An option needs `items`, or descriptions do not go together.
    """

    items: Any = None
    item: str | None = None
    title: str | None = None
    reading: Reading = field(default_factory=Reading)
    has_titles: bool = False
    forms: Forms = field(default_factory=Forms)
    descriptions: Descriptions = field(default_factory=Descriptions)

    def __post_init__(self) -> None:
        self.descriptions.check(self.items)
        options = {"`items_id`": self.item, "`items_title`": self.title, **self.forms.options}
        for option in [*(name for name, value in options.items() if value), *self.reading.given]:
            if self.items is None:
                raise OptionError(f"{option} needs `items`.")
        if self.has_titles and self.title is not None:
            raise OptionError("`items_title` does not go with `titles`, which has them.")

    def opened(self, folder: Path) -> "OpenedItems | None":
        """Open the source, if there is one.

        Args:
            folder: Folder for standard input.

        Raises:
            DataError: The file or a column does not exist.
        """
        if self.items is None:
            return None
        source = open_source(self.items, self.reading, folder)
        for role, column in (("items_id", self.item), ("items_title", self.title)):
            if column is not None:
                choose_column(source.name, source.columns, role, column)
        return OpenedItems(source, self)


@dataclass(frozen=True)
class OpenedItems:
    """A source of items."""

    source: Source
    options: Items

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
        source, options = self.source, self.options
        key = id_column(tables, source, "items_id", options.item, ITEMS_OF_SOURCES)
        title = self._title(key)
        try:
            columns = columns_of(source, {key, title or key}, options.forms, tables.connection)
            options.descriptions.check_columns(
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
        if options.descriptions and not known_only:
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
        rows = ItemRows(tables, schema, options.descriptions, short_name)
        return rows, f"{line}; attributes: {kinds or 'none'}"

    def _title(self, key: str) -> str | None:
        """The column of titles, if there is one."""
        source, options = self.source, self.options
        if options.title is not None:
            return choose_column(source.name, source.columns, "items_title", options.title)
        if options.has_titles:
            return None
        return find_column([each for each in source.columns if each != key], "items_title", None)

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
