"""Titles of items, from a file or a table."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from widenet.data.formats.columns import Columns, choose_column
from widenet.data.formats.source import Reading, Source
from widenet.data.item_columns import id_column, no_item_of
from widenet.data.sources import mistake, opened_one
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
        item_of_interactions: Column of the interactions with the item, if it was named.

    Raises:
        OptionError: An option needs `titles`.
    """

    titles: Any = None
    item: str | None = None
    title: str | None = None
    reading: Reading = field(default_factory=Reading)
    item_of_interactions: str | None = None

    def __post_init__(self) -> None:
        options = {"`title_id`": self.item, "`title`": self.title}
        for option in [*(name for name, value in options.items() if value), *self.reading.given_options]:
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
        source = opened_one(self.titles, self.reading, folder)
        key = id_column(source, "title-id", self.item, self.item_of_interactions)
        text = choose_column(source.name, source.columns, "title", self.title, source.roles.get("item"))
        return OpenedTitles(source, key, text)


@dataclass(frozen=True)
class OpenedTitles:
    """A source of titles, with its columns of ids and titles."""

    source: Source
    key: str
    text: str

    def described(self) -> str:
        """Describe in one line how the source is read."""
        return (
            f"reading titles in {self.source.name.rpartition('/')[2]}: title-id = {self.key}, title ="
            f" {self.text}"
        )

    def read(self, tables: Tables) -> None:
        """Fill the table `titles`; raises DataError if no id of the source is a feature."""
        source, key, text = self.source, self.key, self.text
        columns = f"{source.text(key)}, min({source.text(text)})"
        try:
            tables.connection.execute(
                f"INSERT INTO titles SELECT {columns} FROM {source.scan(tables.connection)} GROUP BY 1"
            )
        except duckdb.Error as error:
            raise mistake([(source, Columns(key, text))], reason_of(error)) from error
        titled = tables.count(
            "SELECT count(*) FROM features JOIN titles USING (name) WHERE titles.title IS NOT NULL"
        )
        if not titled:
            raise no_item_of(tables, source, key, "title_id")
        tables.facts |= {"titles": source.name.rpartition("/")[2], "items_with_title": titled}
