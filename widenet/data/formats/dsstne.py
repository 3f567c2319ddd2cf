"""DSSTNE's text: a line is NAME, a tab, and FEATURE,VALUE:FEATURE,VALUE; values are optional."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from widenet.data.formats import sql
from widenet.data.formats.columns import Columns, first_broken
from widenet.data.formats.source import Format, Reading, TextSource
from widenet.data.formats.text import NO_UTF8, TextFile, is_utf8


def opened(path: Path, name: str, reading: Reading) -> "Dsstne":  # noqa: ARG001
    """Open a file as DSSTNE's text."""
    return Dsstne(
        name,
        "dsstne (NAME, tab, ITEM,VALUE:ITEM,VALUE)",
        ["user", "item", "value"],
        empty_users=True,
        file=TextFile(path),
    )


FORMAT = Format(opened, (".dsstne",))


@dataclass
class Dsstne(TextSource):
    """DSSTNE's text; a name without features is a user without items, whose value is 1."""

    def scan(self, connection: duckdb.DuckDBPyConnection) -> str:
        """The SQL table of `user`, `item` and `value`."""
        parted = (
            'split_part(line, chr(9), 1) AS "user", rtrim(substr(line, strpos(line, chr(9)) + 1), chr(13)) AS'
            " rest"
        )
        lines = f"SELECT line, {parted} FROM {sql.lines(self.file)} WHERE trim(line, chr(13)) <> ''"
        has_tab = "contains(line, chr(9))"
        pairs = (
            f'SELECT CASE WHEN {has_tab} THEN "user" END AS "user", unnest(string_split(rest, \':\')) AS'
            f" pair, rest FROM ({lines})"
        )
        item = "CASE WHEN rest <> '' THEN split_part(pair, ',', 1) END"
        value = (
            "CASE WHEN rest = '' THEN '1' WHEN contains(pair, ',') THEN substr(pair, strpos(pair, ',') +"
            " 1) END"
        )
        return (
            f'(SELECT CASE WHEN {item} = \'\' THEN NULL ELSE "user" END AS "user", {item} AS item, {value} AS'
            f" value FROM ({pairs}))"
        )

    def bad_lines(self, columns: Columns) -> Iterator[tuple[int, str]]:
        """Yield the lines without a tab, and those with a feature or value that breaks a rule."""
        for number, line in enumerate(self.file.lines(), start=1):
            if (text := line.rstrip("\r\n")) and (rule := _rule_broken(text, columns)):
                yield number, rule


def _rule_broken(line: str, columns: Columns) -> str | None:
    if not is_utf8(line):
        return NO_UTF8
    user, tab, rest = line.partition("\t")
    if not tab:
        return "must be a name, a tab and features; it has no tab."
    for pair in rest.split(":") if rest else []:
        item, _, value = pair.partition(",")
        if broken := first_broken({"user": user, "item": item, "value": value}, columns):
            return broken
    return None if user else first_broken({"user": user, "item": "-", "value": "1"}, columns)
