"""The column of a source beside the interactions that holds the ids of its items or users."""

from collections.abc import Iterator

from widenet.data.formats.columns import choose_column
from widenet.data.formats.source import Source
from widenet.data.tables import Tables
from widenet.errors import DataError


def id_column(source: Source, role: str, named: str | None, of_interactions: str | None) -> str:
    """Choose the column with the ids.

    Args:
        source: The source.
        role: Name of the option that names the column, with a dash.
        named: The column that was named; None chooses one.
        of_interactions: Column of the interactions with the same ids, if it was named. If the source has a
            column of this name too, it holds the ids by default.

    Raises:
        DataError: The column does not exist.
    """
    if named is None and of_interactions in source.columns and not source.roles:
        named = of_interactions
    return choose_column(source.name, source.columns, role, named, source.roles.get("user"), source.hint)


def no_item_of(tables: Tables, source: Source, key: str, option: str) -> DataError:
    """Return the error of a column that holds no id of a feature."""
    first = tables.connection.execute("SELECT any_value(name) FROM features WHERE feature = 0").fetchone()
    item = first[0] if first else ""
    return DataError(
        f'{source.name}: column "{key}" must hold ids of items, such as "{item}"; it holds none. Name the'
        f" column with `{option}`."
    )


def other_ids(tables: Tables, source: Source, key: str, option: str) -> Iterator[str]:
    """Yield a note if the column "id" of a source names more items than the one that was chosen."""
    other = next((column for column in source.columns if column.lower() == "id"), key)
    if other == key:
        return
    named, better = (_named(tables, source, column) for column in (key, other))
    if named < better:
        items = "1 item" if named == 1 else f"{named:,} items"
        yield (
            f'note: column "{key}" of {source.name.rpartition("/")[2]} names {items}, and column'
            f' "{other}" {better:,}; choose one with `{option}`'
        )


def _named(tables: Tables, source: Source, column: str) -> int:
    ids = f"SELECT {source.text(column)} FROM {source.scan(tables.connection)}"
    return tables.count(f"SELECT count(*) FROM features WHERE name IN ({ids})")
