"""Titles of items, from a file or a table."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from widenet.data.columns import choose_column, quoted
from widenet.data.item_columns import ITEMS_OF_SOURCES, id_column
from widenet.data.read import open_source
from widenet.data.source import Reading, Source, Table, mistake
from widenet.data.tables import Tables
from widenet.errors import OptionError, reason_of


@dataclass(frozen=True)
class Titles:
    """A source of titles, if there is one.

    Attributes:
        titles: A file or a table; None if there is none.
        item: Column with the ids of the items.
        title: Column with the titles.
        reading: How to read the source.

    Raises:
        OptionError: An option needs `titles`.
    """

    titles: Any = None
    item: str | None = None
    title: str | None = None
    reading: Reading = field(default_factory=Reading)

    def __post_init__(self) -> None:
        options = {"`title_id`": self.item, "`title`": self.title}
        for option in [*(name for name, value in options.items() if value), *self.reading.given]:
            if self.titles is None:
                raise OptionError(f"{option} needs `titles`.")

    def opened(self, folder: Path) -> "OpenedTitles | None":
        """Open the source, if there is one.

        Args:
            folder: Folder for standard input.

        Raises:
            DataError: The file or a column does not exist.
        """
        if self.titles is None:
            return None
        source = open_source(self.titles, self.reading, folder)
        text = choose_column(source.name, source.columns, "title", self.title)
        return OpenedTitles(source, self.item, text)


@dataclass(frozen=True)
class OpenedTitles:
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
