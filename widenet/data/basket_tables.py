"""Reads baskets from a table in memory: one row for each item of somebody."""

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from widenet.data.baskets import Baskets
from widenet.data.formats.columns import OBVIOUS, Columns, listed, plain
from widenet.data.formats.memory import opened
from widenet.data.formats.source import Source
from widenet.data.sources import mistake
from widenet.errors import DataError

_TABLE = "the table"


def baskets_of(table: Any, named: Mapping[str, str]) -> Baskets:
    """Read the baskets of a table, in order of their first rows.

    Args:
        table: A pandas, Polars or Arrow table, a dictionary of columns, or a SciPy matrix.
        named: The column of "user", "item" and "value"; the first two are guessed without it, and values are
            not read.

    Raises:
        DataError: A column is missing, or a cell breaks its rule.
    """
    source = opened(table, _TABLE)
    columns = Columns(
        _chosen(source, "user", named.get("user")),
        _chosen(source, "item", named.get("item")),
        _chosen(source, "value", named["value"]) if "value" in named else None,
        floats=source.floats,
    )
    with duckdb.connect() as connection:
        connection.execute("SET preserve_insertion_order = true")
        read = connection.sql(source.interactions(connection, columns)).to_arrow_table()
    has_item = ~_nulls(read["item"])
    lacks_item = ~has_item & (not source.empty_users)
    if (lacks_item | _nulls(read["user"]) | _nulls(read["value"])).any():
        raise mistake([(source, columns)], "a cell breaks the rule of its column")
    keys = _plain(source.table[columns.user]).dictionary_encode()
    return Baskets(
        keys.dictionary,
        keys.indices.to_numpy(zero_copy_only=False).astype(np.int64)[has_item],
        [str(name) for name in read["item"].filter(pa.array(has_item)).to_pylist()],
        None if columns.value is None else read["value"].to_numpy()[has_item],
    )


def _chosen(source: Source, role: str, named: str | None) -> str:
    """The column of a role; raises DataError if there is none."""
    obvious = [column for name in OBVIOUS[role] for column in source.columns if plain(column) == name]
    if named in source.columns or (named is None and obvious):
        return named or obvious[0]
    rule = f'column "{named}" does not exist' if named else f"no column is obviously the {role}"
    raise DataError(
        f"{source.name}: {rule}; it has {listed(source.columns)}. Name it with"
        f" `columns={{{role!r}: COLUMN}}`."
    )


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """A column as one array without categories, texts in the form that Arrow's functions take."""
    array = column.combine_chunks()
    if pa.types.is_dictionary(array.type):
        return _plain(pa.chunked_array([array.dictionary])).take(array.indices)
    return array.cast(pa.string()) if pa.types.is_string_view(array.type) else array


def _nulls(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.is_null().to_numpy(), dtype=bool)
