"""Adjacency text: each line holds a user and its items, separated by spaces; a user may have several lines, or no items."""

from pathlib import Path

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns

SUFFIXES: tuple[str, ...] = (".adj", ".adjacency")
EMPTY_USERS = True
LONGEST_LINE_BYTES = 2**26

_NO_DELIMITER = "\x01"


def column_names(path: Path) -> list[str]:  # noqa: ARG001
    """The two columns that every such file has."""
    return ["user", "item"]


def scan(path: Path) -> str:
    """The SQL table of `user` and `item`; a user without items has one row without an item."""
    options = (
        f"columns = {{'line': 'VARCHAR'}}, delim = '{_NO_DELIMITER}', quote = '', escape = '', comment = '', "
        f"header = false, auto_detect = false, strict_mode = false, "
        f"max_line_size = {LONGEST_LINE_BYTES}, buffer_size = {2 * LONGEST_LINE_BYTES}"
    )
    lines = sql.read("read_csv", path, options)
    words = f"SELECT list_filter(string_split_regex(line, '\\s+'), lambda word: word <> '') AS words FROM {lines}"  # noqa: S608
    items = "unnest(CASE WHEN len(words) > 1 THEN words[2:] ELSE [NULL] END)"
    return f'(SELECT words[1] AS "user", {items} AS item FROM ({words}) WHERE len(words) > 0)'  # noqa: S608


def first_mistake(path: Path, columns: Columns) -> str | None:  # noqa: ARG001
    """The first byte that is no UTF-8, as a sentence; None when there is none: every other text is right."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f"{path}: line {number}: must be UTF-8 text; {error.reason}. Convert the file, for example with `iconv -t utf-8`."
            if len(line) > LONGEST_LINE_BYTES:
                return f"{path}: line {number}: must have at most {LONGEST_LINE_BYTES:,} bytes. Divide it: a user may have several lines."
    return None
