"""JSON: one object a line, or one array of objects.

A key that holds lists gives one interaction for each entry.
"""

import json
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Self

import duckdb

from widenet.data.formats import json_array, sql
from widenet.data.formats.columns import Columns, first_broken
from widenet.data.formats.source import Format, Reading, TextSource
from widenet.data.formats.text import NO_UTF8, TextFile, copy_in, is_utf8
from widenet.errors import DataError
from widenet.regular_files import LONGEST_LINE_BYTES
from widenet.spec.document import unique

_FIRST_OBJECTS = 100


def opened(path: Path, name: str, reading: Reading) -> "JsonLines":  # noqa: ARG001
    """Open a file; the keys of its first lines, or of the first objects of an array, are the columns."""
    file = TextFile(path, name)
    if json_array.is_array(file):
        return _source(name, file, list(islice(json_array.elements(file), _FIRST_OBJECTS)), is_array=True)
    with file.opened() as text:
        if text.read(len(BOM_UTF8)) == BOM_UTF8:
            raise DataError(f"{name}: line 1: must not begin with a byte order mark.")
    return _source(name, file, file.sample())


FORMAT = Format(opened, (".jsonl", ".ndjson", ".json"))


def _source(name: str, file: TextFile, sample: Sequence[str], is_array: bool = False) -> "JsonLines":
    """Make the source of a file from its first lines or objects."""
    keys: dict[str, Any] = {}
    for number, line in enumerate(sample, start=1):
        try:
            record = json.loads(line, parse_int=str)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            # Names of columns must be Unicode; the line of a key that is not is refused when it is read.
            record = {
                key.encode("utf-8", "surrogatepass").decode("utf-8", "replace"): value
                for key, value in record.items()
            }
            keys = record | {key: value for key, value in keys.items() if value is not None}
        elif number == 1:
            raise DataError(f"{name}: {'object' if is_array else 'line'} 1: must be a JSON object.")
    if is_array and not sample:
        raise DataError(f"{name}: must be a JSON array of objects; it is empty.")
    lists = frozenset(key for key, value in keys.items() if isinstance(value, list))
    kind = "a JSON array" if is_array else "JSON lines"
    if lists:
        kind += f" ({min(lists)} holds lists)"
    return JsonLines(
        name,
        kind,
        list(keys),
        empty_users=bool(lists),
        file=file,
        row="object" if is_array else "line",
        lists=lists,
        is_array=is_array,
    )


@dataclass
class JsonLines(TextSource):
    """JSON lines, or a JSON array of objects.

    If several keys hold lists, their first entries belong together, then their second ones, and so on. An
    empty list is a user without items.
    """

    lists: frozenset[str] = field(default=frozenset())
    is_array: bool = False

    def prepared(self, folder: Path) -> Self:
        """The source to read: for an array, a copy with one object a line."""
        if not self.is_array:
            return super().prepared(folder)
        return replace(self, file=json_array.as_lines(self.file, copy_in(folder)))

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all keys, as text."""
        return self._rows(self._lines(), dict.fromkeys(self.columns, "NULL"))

    def typed_rows(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all keys as JSON or lists of JSON, one row a line."""
        return self._lines()

    def cells(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of all keys as text, one row a line; NULL for a list or an object."""
        lines = replace(self, lists=frozenset())._lines()
        texts = ", ".join(f"nullif({_plain(sql.name(key))}, '') AS {sql.name(key)}" for key in self.columns)
        return f"(SELECT {texts} FROM {lines})"

    def interactions(self, connection: duckdb.DuckDBPyConnection, columns: Columns) -> str:
        """The SQL query of `Columns.interactions`.

        A line gets no user if its lists differ in length, or hold an entry that is not an item.
        """
        if not self.lists:
            return columns.interactions(self.scan(connection))
        lists = [sql.name(key) for key in _used(columns) if key in self.lists]
        item, user = sql.name(columns.item), sql.name(columns.user)
        is_missing = (
            f"coalesce({_plain('entry')}, '') = ''" if item in lists else f"coalesce({_plain(item)}, '') = ''"
        )
        wrong = [f"len(list_filter({item}, lambda entry: {is_missing})) > 0" if item in lists else is_missing]
        wrong += [f"coalesce(len({each}), 0) <> coalesce(len({lists[0]}), 0)" for each in lists[1:]]
        fitting = (
            f"SELECT * REPLACE (CASE WHEN {' OR '.join(wrong)} THEN NULL ELSE {user} END AS {user}) FROM"
            f" {self._lines()}"
        )
        keys = {
            key: "NULL" if key in (columns.item, columns.user) else "CAST('0' AS JSON)"
            for key in _used(columns)
        }
        return columns.interactions(self._rows(f"({fitting})", keys))

    def _lines(self) -> str:
        """The SQL table of all keys as JSON or lists of JSON, one row a line."""
        kinds = ", ".join(
            f"{sql.literal(key)}: '{'JSON[]' if key in self.lists else 'JSON'}'" for key in self.columns
        )
        options = (
            f"columns = {{{kinds}}}, compression = '{self.file.compression}', maximum_object_size ="
            f" {LONGEST_LINE_BYTES}"
        )
        return sql.read("read_ndjson", self.file.path, options)

    def _rows(self, lines: str, keys: Mapping[str, str]) -> str:
        """The SQL table of some keys as text, one row for each entry of their lists.

        Args:
            lines: The SQL table of the lines.
            keys: The keys, each with the SQL of its value for an empty list.
        """
        entries = ", ".join(
            (
                f"unnest(CASE WHEN len({sql.name(key)}) > 0 THEN {sql.name(key)} ELSE [{absent}] END) AS"
                f" {sql.name(key)}"
                if key in self.lists
                else sql.name(key)
            )
            for key, absent in keys.items()
        )
        texts = ", ".join(f"{_plain(sql.name(key))} AS {sql.name(key)}" for key in keys)
        return f"(SELECT {texts} FROM (SELECT {entries} FROM {lines}))"

    def bad_lines(self, columns: Columns) -> Iterator[tuple[int, str]]:
        """Yield the lines that are not JSON objects, and those with a value that breaks a rule."""
        for number, line in enumerate(self.file.lines(), start=1):
            if line.strip() and (rule := self._rule_broken(line, columns)):
                yield number, rule

    def _rule_broken(self, line: str, columns: Columns) -> str | None:
        try:
            record = json.loads(line, parse_int=str, object_pairs_hook=unique)
        except (ValueError, RecursionError) as error:
            reason = str(error)
            if isinstance(error, json.JSONDecodeError):
                reason = f"at character {error.pos + 1}, {error.msg}"
            return f"must be a JSON object; {reason}."
        if not is_utf8(json.dumps(record, ensure_ascii=False)):
            return NO_UTF8
        if not isinstance(record, dict):
            return "must be a JSON object."
        for key in _used(columns):
            if isinstance(record.get(key), list) != (key in self.lists) and record.get(key) is not None:
                return f'"{key}" must be {"a list" if key in self.lists else "one value"}, as before.'
        lists = sorted(key for key in _used(columns) if key in self.lists)
        record |= {key: [] for key in lists if record.get(key) is None}
        lengths = {len(record[key]) for key in lists}
        if len(lengths) > 1:
            return f"the lists {', '.join(lists)} must have the same length."
        for place in range(max(lengths, default=1)):
            cells = {key: record[key][place] if key in lists else record.get(key) for key in _used(columns)}
            for key, value in cells.items():
                if isinstance(value, dict | list):
                    return f'"{key}" must hold texts or numbers; got {json.dumps(value)[:60]}.'
            if broken := first_broken({key: _text(value) for key, value in cells.items()}, columns):
                return broken
        return None


def _used(columns: Columns) -> list[str]:
    """The keys with the columns that are read."""
    return [key for key, _ in columns.expressions().values()]


def _plain(value: str) -> str:
    """The SQL of a JSON value as text; NULL for null, a list or an object."""
    return f"CASE WHEN json_type({value}) NOT IN ('OBJECT', 'ARRAY') THEN {value} ->> '$' END"


def _text(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)
