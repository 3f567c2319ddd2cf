"""The SQL tables of an ingest: numbered names of users and items; plain ids are counted as numbers."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from widenet.data.buckets import ROWS_PER_BUCKET
from widenet.data.columns import literal, quoted
from widenet.data.ingest_arguments import OnRows
from widenet.data.known import KnownFeatures
from widenet.data.manifest import MAX_WIDTH, Facts, Part
from widenet.data.source import Sources
from widenet.data.text_formats import sql_path
from widenet.data.writer import ROWS_PER_BATCH
from widenet.errors import DataError, reason_of

ROWS_PER_STREAM = 2**18

_KNOWN_ITEMS = "known_items"

_INTEGER = "-?[0-9]{1,38}"
_NAMES = """
    SELECT '{part}', grouping("user") = 1, CAST(coalesce("user", item) AS VARCHAR), count(*), count(item)
    FROM {rows} GROUP BY GROUPING SETS (("user"), (item))
"""
_USERS = (
    "SELECT name, CAST(sum(num_items) AS BIGINT) AS num_rows, true AS stays FROM names WHERE NOT is_item"
    " AND name IS NOT NULL GROUP BY name"
)
_USERS_AGAIN = "SELECT name, num_rows, name IN (SELECT name FROM examples) AS stays FROM users"
_ITEMS = """
    SELECT name, sum(CASE WHEN part = 'train' THEN num_rows ELSE 0 END) AS num_train FROM names
    WHERE is_item AND name IS NOT NULL GROUP BY name
"""


def plain_id(column: str, otherwise: str = "NULL") -> str:
    """The SQL of a text as a whole number of 32 bits; something else for any other text, such as 007."""
    number = f'TRY_CAST("{column}" AS UINTEGER)'
    return f'CASE WHEN CAST({number} AS VARCHAR) = "{column}" THEN {number} ELSE {otherwise} END'


class Tables:
    """The tables of an ingest; call `read` for each part, then `number`, then `keep`.

    Args:
        connection: The database.
        folder: Folder for rows on disk.
        in_order: Whether to keep rows in the order of the sources, one source after the other.
        on_rows: Called with the number of rows that are done, and their total or None.
        known: Vocabularies whose features keep their indices.
        field: Name of the field of the items.

    Attributes:
        facts: Counts of what was read and dropped, for the manifest.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        folder: Path,
        in_order: bool = False,
        on_rows: OnRows | None = None,
        known: KnownFeatures | None = None,
        field: str = "items",
    ) -> None:
        self.connection, self._folder, self._in_order = connection, folder, in_order
        connection.execute(f"SET preserve_insertion_order = {in_order}")
        self._on_rows = on_rows
        self._is_plain: dict[Part, bool] = {}
        self._known = known or KnownFeatures(None)
        self.facts: Facts = {}
        columns = "part VARCHAR, is_item BOOLEAN, name VARCHAR, num_rows BIGINT, num_items BIGINT"
        connection.execute(f"CREATE TABLE names ({columns})")
        self.load_known(_KNOWN_ITEMS, field)

    def read(self, part: Part, sources: Sources) -> int:
        """Read the names of a part's users and items.

        Args:
            part: The part.
            sources: Its sources.

        Returns:
            The number of wrong rows, which no further step reads.

        Raises:
            DataError: A row is wrong, and the sources are not read without such rows.
        """
        is_plain = not sources.skipping and self._stage(part, sources, is_plain=True)
        if not is_plain:
            self._stage(part, sources, is_plain=False)
        self._is_plain[part] = is_plain
        self.connection.execute(f"INSERT INTO names {_NAMES.format(part=part, rows=self._staged(part))}")
        if self._on_rows is not None and self.num_rows(part):
            self._on_rows(self.num_rows(part), None)
        rows = f"FROM names WHERE part = '{part}'"
        num_wrong = self.count(f"SELECT sum(num_rows) {rows} AND NOT is_item AND name IS NULL")
        num_wrong += sources.num_refused(self.connection)
        if num_wrong and not sources.skipping:
            raise sources.mistake("a row breaks a rule")
        DataError.require(
            "time" not in sources.numbers
            or self.count(f"SELECT count(DISTINCT is_moment) FROM {self._staged(part)}") < 2,
            "must hold numbers alone, or timestamps alone",
            place=sources.names,
            column=sources.time_column,
            option="time",
        )
        num_users = self.count(f"SELECT count(name) {rows} AND NOT is_item")
        DataError.require(
            part != "train" or num_users, "must hold interactions", place=sources.names or "sources"
        )
        DataError.require(
            not self.count(f"SELECT count(*) {rows} AND contains(name, chr(0))"),
            "an id must not hold the character NUL",
            place=sources.names,
        )
        return num_wrong

    def _stage(self, part: Part, sources: Sources, is_plain: bool) -> bool:
        """Write the rows of a part into a file; returns False if ids must be plain, and one is not.

        Plain ids are counted and joined several times as fast as texts.
        """
        user, item = (plain_id(each, "error('')") if is_plain else quoted(each) for each in ("user", "item"))
        kinds = ["is_moment"] if "time" in sources.numbers else []
        columns = ", ".join([f'{user} AS "user"', f"{item} AS item", *sources.numbers, *kinds])
        query = f"SELECT {columns} FROM ({sources.query(self.connection)})"
        path = literal(self._file(part, is_plain))
        try:
            self.connection.execute(
                f"COPY ({query}) TO {path} (FORMAT parquet, COMPRESSION uncompressed, ROW_GROUP_SIZE 16384)"
            )
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) and str(self._folder) in str(error):
                raise
            if is_plain:
                return False
            raise sources.mistake(reason_of(error)) from error
        return True

    def _file(self, part: Part, is_plain: bool) -> Path:
        """The file of a part's rows; DuckDB may still remove that of plain ids, which failed, later."""
        return self._folder / f"{part}-{'numbers' if is_plain else 'texts'}.parquet"

    def _staged(self, part: Part) -> str:
        """The SQL table of the rows of a part."""
        path = sql_path(self._file(part, self._is_plain[part]))
        return f"read_parquet({path}, file_row_number = true, hive_partitioning = false)"

    def num_rows(self, part: Part) -> int:
        """Number of interactions in the sources of a part."""
        return self.count(f"SELECT sum(num_items) FROM names WHERE part = '{part}' AND NOT is_item")

    def latest(self, part: Part) -> float:
        """The newest time of a part; 0 without interactions."""
        newest = f'SELECT max(time) FROM {self._staged(part)} WHERE "user" IS NOT NULL AND item IS NOT NULL'
        [(time,)] = self.connection.execute(newest).fetchall()
        return float(time or 0)

    def number(self, again: bool = False) -> tuple[int, int, int]:
        """Make the tables `users` and `items`, each with a number.

        Args:
            again: Whether `keep` was called; users who do not stay then come last.

        Returns:
            Number of users, of items, and of buckets.
        """
        users = _USERS_AGAIN if again else _USERS
        order = self.order(f"SELECT name FROM ({users}) WHERE stays")
        rows = "greatest(sum(num_rows) OVER (ORDER BY number ROWS UNBOUNDED PRECEDING) - 1, 0)"
        numbered = (
            f"SELECT name, num_rows, row_number() OVER (ORDER BY stays DESC, {order}) - 1 AS number FROM"
            f" ({users})"
        )
        bucket = f"CAST({rows} // {ROWS_PER_BUCKET} AS USMALLINT) AS bucket"
        self.connection.execute(f"CREATE OR REPLACE TABLE users AS SELECT *, {bucket} FROM ({numbered})")
        order = f"num_train DESC, {self.order(_ITEMS)}"
        self.connection.execute(
            f"CREATE OR REPLACE TABLE items AS SELECT name, row_number() OVER (ORDER BY {order}) - 1 AS"
            f" number FROM ({_ITEMS})"
        )
        sizes = (
            "SELECT count(*) FROM users",
            "SELECT count(*) FROM items",
            "SELECT max(bucket) + 1 FROM users",
        )
        num_users, num_items, num_buckets = map(self.count, sizes)
        return num_users, num_items, num_buckets

    def order(self, names: str) -> str:
        """The SQL order of some names: by value if all are whole numbers, otherwise by their bytes."""
        texts = self.count(f"SELECT count(*) FROM ({names}) WHERE NOT regexp_full_match(name, '{_INTEGER}')")
        return "name" if texts else "TRY_CAST(name AS HUGEINT), name"

    def with_progress(
        self, batches: Iterable[pa.RecordBatch], total: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches, and call `on_rows` with the rows so far and their total, if it is known."""
        num_rows = 0
        for batch in batches:
            num_rows += batch.num_rows
            if self._on_rows is not None:
                self._on_rows(num_rows, total)
            yield batch

    def rows(self, part: Part, numbers: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the interactions of a part, in any order unless `in_order` is set.

        The batches have the user's bucket, the key of `buckets.Rows`, and the numbers that are read.
        """
        key = "(CAST(users.number AS UBIGINT) << 32) | CAST(items.number AS UBIGINT) AS key"
        columns = ", ".join(["bucket", key, *numbers])
        numbered = f"SELECT *, {plain_id('name') if self._is_plain[part] else 'name'} AS id FROM"
        joined = f"""
            {self._staged(part)} JOIN ({numbered} users) AS users ON "user" = users.id
            JOIN ({numbered} items) AS items ON item = items.id
        """
        order = " ORDER BY file_row_number" if self._in_order else ""
        return self.stream(f"SELECT {columns} FROM {joined}{order}", ROWS_PER_STREAM)

    def _indexed(self, query: str, length: int, kind: type[np.generic]) -> np.ndarray:
        """The second column of a query, indexed by the first, [length]; 0 where there is no row."""
        values = np.zeros(length, dtype=kind)
        for batch in self.stream(query, ROWS_PER_STREAM):
            places, found = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
            values[places] = found
        return values

    def keep(self, stays: np.ndarray) -> bool:
        """Make the table `examples` of the users who stay, bool [users].

        Returns:
            Whether their numbers are in the order of examples.
        """
        self.connection.register("staying", pa.table({"number": np.flatnonzero(stays)}))
        self.connection.execute(
            "CREATE OR REPLACE TABLE examples AS SELECT name, number FROM users JOIN staying USING (number)"
        )
        if stays.all():
            return True
        order = self.order("SELECT name FROM examples")
        ordered = f"SELECT number, lag(number) OVER (ORDER BY {order}) AS before FROM examples"
        return not self.count(f"SELECT count(*) FROM ({ordered}) WHERE before > number")

    def load_known(self, table: str, field: str) -> bool:
        """Make the table of the features that a field has in an earlier vocabulary: name, title and feature.

        Returns:
            Whether there is such a vocabulary.
        """
        self.connection.execute(f"CREATE TABLE {table} (name VARCHAR, title VARCHAR, feature UINTEGER)")
        vocabulary, start = self._known.of(field), 0
        for batch in vocabulary.record_batches() if vocabulary is not None else ():
            features = np.arange(start, start + batch.num_rows, dtype=np.uint32)
            self.connection.register(
                "given", batch.select(["id", "title"]).append_column("feature", pa.array(features))
            )
            self.connection.execute(f"INSERT INTO {table} SELECT * FROM given")
            start += batch.num_rows
        return vocabulary is not None

    def known_items(self, num_items: int) -> np.ndarray:
        """Whether each item is a known feature, bool [items]."""
        query = f"SELECT number, true FROM items SEMI JOIN {_KNOWN_ITEMS} USING (name)"
        return self._indexed(query, num_items, np.bool_)

    def make_features(self, table: str, known: str, counted: str) -> int:
        """Make a table of features: known ones at their indices, then new ones by falling count.

        Args:
            table: The table to make.
            known: The table of known features.
            counted: A query of name, count and more, for the features in the sources.

        Returns:
            The number of new features.
        """
        new = f"SELECT * FROM ({counted}) ANTI JOIN {known} USING (name)"
        num_known, num_new = (
            self.count(f"SELECT count(*) FROM ({query})") for query in (f"FROM {known}", new)
        )
        DataError.require(
            num_known + num_new <= MAX_WIDTH,
            f"a field must have at most {MAX_WIDTH:,} features; got {num_known + num_new:,}.",
        )
        feature = (
            f"CAST({num_known} + row_number() OVER (ORDER BY count DESC, {self.order(new)}) - 1 AS UINTEGER)"
            " AS feature"
        )
        self.connection.execute(
            f"CREATE TABLE {table} AS SELECT * FROM {known} LEFT JOIN ({counted}) USING (name) "
            f"UNION ALL BY NAME SELECT *, {feature} FROM ({new})"
        )
        return num_new

    def number_features(self, stays: np.ndarray, num_train: np.ndarray) -> np.ndarray:
        """Make the table `features` of known items and those that stay, with their counts.

        Args:
            stays: Whether each item stays, bool [items].
            num_train: Number of train interactions of each item, int64 [items].

        Returns:
            The feature of each item, uint32 [items].
        """
        numbers = np.flatnonzero(stays)
        self.connection.register("counted", pa.table({"number": numbers, "count": num_train[numbers]}))
        num_new = self.make_features(
            "features",
            _KNOWN_ITEMS,
            "SELECT name, number, counted.count FROM items JOIN counted USING (number)",
        )
        if num_new < self.count("SELECT count(*) FROM features"):
            self.facts["items_new"] = num_new
        query = "SELECT number, feature FROM features WHERE number IS NOT NULL"
        return self._indexed(query, len(stays), np.uint32)

    def count(self, query: str) -> int:
        """The result of a query for one number; NULL counts as 0."""
        [(number,)] = self.connection.execute(query).fetchall()
        return int(number or 0)

    def vocabulary(self) -> Iterator[pa.RecordBatch]:
        """The rows of the vocabulary, in order."""
        columns = "name AS id, coalesce(titles.title, features.title) AS title, coalesce(count, 0) AS count"
        return self.stream(
            f"SELECT {columns} FROM features LEFT JOIN titles USING (name) ORDER BY feature", ROWS_PER_BATCH
        )

    def stream(self, query: str, rows: int) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of a query in batches of so many rows."""
        with self.connection.cursor() as cursor:
            reader: pa.RecordBatchReader = cursor.sql(query).to_arrow_reader(rows)
            yield from reader
