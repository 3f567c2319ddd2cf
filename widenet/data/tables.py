"""The SQL tables of an ingest: interactions merged, examples and features numbered, titles joined."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns, chosen
from widenet.data.formats.table import Format, format_of
from widenet.data.manifest import Facts, Part
from widenet.data.rules import MAX_WIDTH
from widenet.data.writer import ROWS_PER_BATCH
from widenet.errors import DataError, OptionError

ENTRIES_PER_BATCH = 2**20

_INTEGER = "-?[0-9]{1,38}"
_EXAMPLES = 'SELECT DISTINCT "user" AS name FROM train UNION SELECT "user" FROM heldout UNION SELECT "user" FROM users_without_items'
_FEATURES = """
    SELECT name, CAST(sum(num_train) AS BIGINT) AS num_train FROM (
        SELECT item AS name, count(*) AS num_train FROM train GROUP BY item
        UNION ALL SELECT DISTINCT item, 0 FROM heldout
    ) GROUP BY name
"""
_ENTRIES = """
    SELECT example, CAST(feature AS UINTEGER) AS feature, CAST(value AS FLOAT) AS value FROM {part}
    JOIN examples ON "user" = examples.name JOIN features ON item = features.name ORDER BY example, feature
"""
_TAKEN = 'EXISTS (SELECT 1 FROM train WHERE train."user" = heldout."user" AND train.item = heldout.item)'


@contextmanager
def database(folder: Path, memory: str | None, threads: int | None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB that keeps its tables and spills in a folder, which is removed at the end."""
    scratch = folder / "duckdb"
    scratch.mkdir()
    limits = {"memory_limit": memory, "threads": threads}
    config = {option: value for option, value in limits.items() if value is not None}
    try:
        connection = duckdb.connect(str(scratch / "ingest.duckdb"), config={"temp_directory": str(scratch), **config})
    except duckdb.Error as error:
        shutil.rmtree(scratch)
        raise OptionError(f'--memory must be a size such as "8GB" and --threads at least 1; {_first_line(error)}.') from error
    try:
        with connection:
            yield connection
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        raise DataError(f"{folder.parent}: no room for the work; {_first_line(error)}. Give more --memory, or free disk space.") from error
    finally:
        shutil.rmtree(scratch)


class Tables:
    """The tables, in the order in which they are made: `merge` for each part, then `number`, then `title`.

    user, item, value, time: the columns of all sources that were named; None is guessed or absent.
    min_value: the least value of an interaction that stays, or None.
    facts: what was read and dropped, for the manifest.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        user: str | None,
        item: str | None,
        value: str | None,
        time: str | None,
        min_value: float | None,
    ) -> None:
        self._connection = connection
        self._user, self._item, self._value, self._time = user, item, value, time
        self._min_value = min_value
        self.facts: Facts = {}
        connection.execute('CREATE TABLE users_without_items ("user" VARCHAR)')

    def merge(self, part: Part, sources: Sequence[Path], named_format: str | None) -> None:
        """The table `train` or `heldout`: each (user, item) once, of the least value or more; counts go to `facts`."""
        read = [(path, known := format_of(path, named_format), self._columns(path, known)) for path in sources]
        queries = [f"({columns.interactions(known.scan(path))})" for path, known, columns in read]
        union = " UNION ALL ".join(queries) if queries else "(SELECT '' AS \"user\", '' AS item, 1.0 AS value, 0.0 AS time WHERE false)"
        value = "max(value)" if self._time is None else "arg_max(value, {'time': time, 'value': value})"
        counts = "count(*) AS num_rows, count(value) AS num_values, count(time) AS num_times"
        try:
            self._connection.execute(
                f'CREATE TABLE merged AS SELECT "user", item, {value} AS value, {counts} FROM ({union}) GROUP BY "user", item'  # noqa: S608
            )
        except duckdb.Error as error:
            raise self._mistake(read, _first_line(error)) from error
        empty = "0" if all(known.EMPTY_USERS for _, known, _ in read) else "num_rows"
        broken = f'CASE WHEN "user" IS NULL THEN num_rows WHEN item IS NULL THEN {empty} ELSE 2 * num_rows - num_values - num_times END'
        if self.count(f"SELECT sum({broken}) FROM merged"):  # noqa: S608
            raise self._mistake(read, "a cell breaks the rule of its column")
        kept = "true" if self._min_value is None else f"value >= {float(self._min_value)!r}"
        self._connection.execute(f'CREATE TABLE {part} AS SELECT "user", item, value FROM merged WHERE item IS NOT NULL AND {kept}')  # noqa: S608
        self._connection.execute('INSERT INTO users_without_items SELECT "user" FROM merged WHERE item IS NULL')
        self._count(part, kept)
        self._connection.execute("DROP TABLE merged")

    def _count(self, part: Part, kept: str) -> None:
        rows = self.count("SELECT sum(num_rows) FROM merged WHERE item IS NOT NULL")
        pairs = self.count("SELECT count(*) FROM merged WHERE item IS NOT NULL")
        below = self.count(f"SELECT count(*) FROM merged WHERE item IS NOT NULL AND NOT ({kept})")  # noqa: S608
        self.facts |= {f"{part}_rows_read": rows, f"{part}_duplicates_merged": rows - pairs, f"{part}_below_min_value": below}

    def _columns(self, path: Path, known: Format) -> Columns:
        found = known.column_names(path)
        needs_value = self._value is not None or self._min_value is not None
        return Columns(
            user=chosen(path, found, "user", self._user),
            item=chosen(path, found, "item", self._item),
            value=chosen(path, found, "value", self._value) if needs_value else None,
            time=chosen(path, found, "time", self._time) if self._time is not None else None,
        )

    def _mistake(self, read: Sequence[tuple[Path, Format, Columns]], otherwise: str) -> DataError:
        for path, known, columns in read:
            if mistake := known.first_mistake(path, columns):
                return DataError(mistake)
        return DataError(
            f"{', '.join(str(path) for path, _, _ in read)}: cannot be read: {otherwise}. Check the file, or name its --format."
        )

    def number(self, source: Path) -> int:
        """The tables `examples` and `features`, each in its order; gives the number of features.

        Drops from `heldout` what is in `train`. Raises DataError when nothing is left.
        """
        taken = self.count(f"SELECT count(*) FROM heldout WHERE {_TAKEN}")  # noqa: S608
        self._connection.execute(f"DELETE FROM heldout WHERE {_TAKEN}")  # noqa: S608
        self.facts["heldout_already_in_train"] = taken
        if not self.count("SELECT count(*) FROM train"):
            below = self.facts["train_below_min_value"]
            why = f"all {below:,} are below --min-value {self._min_value:g}. Lower it." if below else "there is none. Check the file."
            raise DataError(f"{source}: at least one interaction must be left; {why}")
        self._numbered("examples", "example", _EXAMPLES, "")
        self._numbered("features", "feature", _FEATURES, "num_train DESC, ")
        width = self.count("SELECT count(*) FROM features")
        if width > MAX_WIDTH:
            raise DataError(f"{source}: a field must have at most {MAX_WIDTH:,} features; got {width:,}.")
        return width

    def _numbered(self, table: str, index: str, rows: str, before_name: str) -> None:
        texts = self.count(f"SELECT count(*) FROM ({rows}) WHERE NOT regexp_full_match(name, '{_INTEGER}')")  # noqa: S608
        order = before_name + ("name" if texts else "CAST(name AS HUGEINT), name")
        query = f"SELECT *, row_number() OVER (ORDER BY {order}) - 1 AS {index} FROM ({rows})"  # noqa: S608
        self._connection.execute(f"CREATE TABLE {table} AS {query}")

    def title(self, path: Path | None, title_id: str | None, title: str | None) -> None:
        """The table `titles`, from a file or empty; raises DataError when no id of the file is a feature."""
        self._connection.execute("CREATE TABLE titles (name VARCHAR, title VARCHAR)")
        if path is None:
            return
        known = format_of(path)
        found = known.column_names(path)
        key, text = chosen(path, found, "title-id", title_id), chosen(path, found, "title", title)
        columns = f"CAST({sql.name(key)} AS VARCHAR), min(nullif(CAST({sql.name(text)} AS VARCHAR), ''))"
        try:
            self._connection.execute(f"INSERT INTO titles SELECT {columns} FROM {known.scan(path)} GROUP BY 1")  # noqa: S608
        except duckdb.Error as error:
            raise self._mistake([(path, known, Columns(key, text))], _first_line(error)) from error
        titled = self.count("SELECT count(*) FROM features JOIN titles USING (name) WHERE title IS NOT NULL")
        if not titled:
            example = self._connection.execute("SELECT any_value(name) FROM features WHERE feature = 0").fetchone()
            item = example[0] if example else ""
            raise DataError(
                f'{path}: column "{key}" must hold ids of items, such as "{item}"; none is one. Name the column with --title-id.'
            )
        self.facts |= {"titles": path.name, "items_with_title": titled}

    def count(self, query: str) -> int:
        """The number that a query gives; NULL counts as 0."""
        row = self._connection.execute(query).fetchone()
        return int(row[0] or 0) if row else 0

    def example_ids(self) -> Iterator[pa.RecordBatch]:
        """The ids of the examples, in order."""
        return self._stream("SELECT name AS id FROM examples ORDER BY example", ROWS_PER_BATCH)

    def entries(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The entries of a part: example, feature, value, in order."""
        return self._stream(_ENTRIES.format(part=part), ENTRIES_PER_BATCH)

    def vocabulary(self) -> Iterator[pa.RecordBatch]:
        """The rows of the vocabulary, in order."""
        named = "SELECT name AS id, title, num_train AS count FROM features LEFT JOIN titles USING (name) ORDER BY feature"
        return self._stream(named, ROWS_PER_BATCH)

    def _stream(self, query: str, rows: int) -> Iterator[pa.RecordBatch]:
        with self._connection.cursor() as cursor:
            reader: pa.RecordBatchReader = cursor.sql(query).to_arrow_reader(rows)
            yield from reader


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0].rstrip(".")
