"""Further fields of users: their categories, numbers and weights."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import duckdb
import pyarrow as pa

from widenet.data.columns import number, quoted
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.items import id_column
from widenet.data.rules import FieldLayout
from widenet.data.source import Source, mistake
from widenet.data.tables import ROWS_PER_STREAM, Tables
from widenet.data.writer import ROWS_PER_BATCH, SortedEntries
from widenet.errors import DataError, reason_of

_ENTRIES = (
    "SELECT example, feature, CAST(1 AS FLOAT) AS value FROM {} JOIN {}_features USING (name) ORDER BY"
    " example, feature"
)


class SideTables:
    """The tables of the side fields, for the examples that stay.

    Args:
        tables: The tables of the ingest.
        source: A file or a table of users, if there is one.
        options: The options, which name the fields and their columns.
        known_only: Whether earlier vocabularies take no new features.

    Raises:
        DataError: A column or a cell breaks a rule.
    """

    def __init__(
        self, tables: Tables, source: Source | None, options: IngestArguments, known_only: bool
    ) -> None:
        self._tables, self._connection, self._known_only = tables, tables.connection, known_only
        self._sparse, self._dense, self._weight = options.sparse or {}, options.dense or {}, options.weight
        self._decimal = "." if source is None else source.decimal
        self._numbers = [
            *chain.from_iterable(self._dense.values()),
            *([self._weight] if self._weight else []),
        ]
        self._connection.execute(
            "CREATE TABLE example_rows AS SELECT name, row_number() OVER (ORDER BY number) - 1 AS example"
            " FROM examples"
        )
        if source is not None:
            ids = "SELECT name FROM example_rows"
            self._read(source, id_column(tables, source, "users_id", options.users_id, ids))
        for place, (name, column) in enumerate(self._sparse.items()):
            rows = f"SELECT name, {_known(column)} AS category FROM known_users"
            self._make_field(name, f"side_{place}", rows, column)

    def _read(self, source: Source, key: str) -> None:
        """Make the table `known_users`: the rows of the users who are examples."""
        named = (*self._numbers, *self._sparse.values())
        wanted = [column for column in source.columns if column in named]
        columns = "".join(f", given.{quoted(column)} AS {_known(column)}" for column in wanted)
        try:
            self._connection.execute(
                f"CREATE TABLE known_users AS SELECT example_rows.example, example_rows.name{columns} FROM"
                f" {source.cells(self._connection)} AS given"
                f" JOIN example_rows ON example_rows.name = given.{quoted(key)}"
            )
        except duckdb.Error as error:
            raise mistake([replace(source, roles={"user": key})], reason_of(error)) from error
        self._check(source)

    def _check(self, source: Source) -> None:
        """Check that no user repeats if there are numbers, and all numbers."""
        known = self._tables.count("SELECT count(DISTINCT name) FROM known_users")
        self._tables.facts |= {
            "users_without_a_row": self._tables.count("SELECT count(*) FROM example_rows") - known
        }
        twice = "SELECT name FROM known_users GROUP BY name HAVING count(*) > 1 ORDER BY name LIMIT 1"
        for (name,) in self._connection.execute(twice).fetchall() if self._numbers else ():
            raise DataError("every user must have one row", place=source.name, value=name)
        for column in self._numbers:
            number, is_weight = self._number(column), column == self._weight
            wrong = f"{number} IS NULL OR ({is_weight} AND {number} < 0)"
            first = f"SELECT name, {_known(column)} FROM known_users WHERE {wrong} ORDER BY example LIMIT 1"
            for name, cell in self._connection.execute(first).fetchall():
                rule = f"must hold numbers{' of at least 0' * is_weight}; user {name} has another cell"
                raise DataError(rule, place=source.name, column=column, value=cell)

    def _number(self, column: str) -> str:
        """The SQL of a column of users as a number."""
        return number(_known(column), self._decimal)

    def _make_field(self, field: str, table: str, rows: str, column: str) -> None:
        """Make the tables of a sparse field: each example's categories, and the features."""
        self._connection.execute(
            f"CREATE TABLE {table} AS SELECT DISTINCT example, category AS name FROM ({rows}) AS given JOIN"
            " example_rows USING (name) WHERE category IS NOT NULL"
        )
        number = self._tables.count(f"SELECT count(*) FROM {table}")
        DataError.require(
            number, "must hold a category for at least one user", column=column, option="sparse"
        )
        counted = f"SELECT name, count(*) AS count FROM {table} GROUP BY name"
        known = f"{table}_known"
        if self._tables.load_known(known, field) and self._known_only:
            self._tables.facts[f"{field}_not_in_vocabulary"] = self._tables.count(
                f"SELECT count(*) FROM ({counted}) ANTI JOIN {known} USING (name)"
            )
            counted = f"SELECT * FROM ({counted}) SEMI JOIN {known} USING (name)"
        self._tables.make_features(f"{table}_features", known, counted)

    @property
    def layouts(self) -> list[FieldLayout]:
        """The layouts of the further fields, sparse ones first."""
        widths = [
            self._tables.count(f"SELECT count(*) FROM side_{place}_features")
            for place in range(len(self._sparse))
        ]
        sparse = [FieldLayout(name, width) for name, width in zip(self._sparse, widths, strict=True)]
        return sparse + [FieldLayout(name, len(columns), "dense") for name, columns in self._dense.items()]

    def entries(self) -> dict[str, SortedEntries]:
        """The entries of each sparse field."""
        tables = {name: f"side_{place}" for place, name in enumerate(self._sparse)}
        return {
            name: SortedEntries(self._tables.stream(_ENTRIES.format(table, table), ROWS_PER_STREAM))
            for name, table in tables.items()
        }

    def vocabularies(self) -> dict[str, Iterator[pa.RecordBatch]]:
        """The rows of each sparse field's vocabulary, in order."""
        named = "SELECT name AS id, title, coalesce(count, 0) AS count FROM side_{}_features ORDER BY feature"
        return {
            name: self._tables.stream(named.format(place), ROWS_PER_BATCH)
            for place, name in enumerate(self._sparse)
        }

    def examples(self) -> Iterator[pa.RecordBatch]:
        """Yield the ids of the examples in order, with their weights and dense fields.

        A user without a row has the weight 1 and zeros.
        """
        numbers = [f"coalesce({self._number(self._weight)}, 1) AS weight"] if self._weight else []
        for name, columns in self._dense.items():
            each = ", ".join(f"CAST(coalesce({self._number(column)}, 0) AS FLOAT)" for column in columns)
            numbers.append(f"array_value({each}) AS {quoted(name)}")
        selected = ", ".join(["example_rows.name AS id", *numbers])
        joined = "LEFT JOIN known_users USING (example)" if numbers else ""
        return self._tables.stream(
            f"SELECT {selected} FROM example_rows {joined} ORDER BY example", ROWS_PER_BATCH
        )


def _known(column: str) -> str:
    """The column of `known_users` that holds a column of the source."""
    return quoted(f"column {column}")
