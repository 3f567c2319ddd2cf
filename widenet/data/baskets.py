"""Several baskets of items, also from a table in memory with one row for each item of somebody."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.errors import DataError

_TABLE = "the table"


@dataclass(frozen=True)
class Baskets:
    """E baskets with Z items altogether.

    Attributes:
        keys: Whose they are: E distinct names, with the type of their column.
        owners: The basket of each item, int64 [Z].
        items: The ids of the items, in the order of the rows; or titles where these are allowed.
        values: A number for each item, float64 [Z]; None if there are none.
        may_be_titles: Whether an item that is no id may be a title.
    """

    keys: pa.Array
    owners: np.ndarray
    items: Sequence[str | int]
    values: np.ndarray | None = None
    may_be_titles: bool = False


def baskets_of(table: Any, named: Mapping[str, str]) -> Baskets:
    """Read the baskets of a table, in order of their first rows.

    Args:
        table: A pandas, Polars or Arrow table, a dictionary of columns, or a SciPy matrix.
        named: The column of "user", "item" and "value"; the first two have usual names without it, and values
            are not read.

    Raises:
        DataError: A column is missing, or a cell breaks its rule.
    """
    import duckdb  # here, because it takes long to load

    from widenet.data.columns import choose_column
    from widenet.data.read import open_table
    from widenet.data.source import Scan, Table, mistake

    source = open_table(table, _TABLE)
    roles = ("user", "item", *(["value"] if "value" in named else []))
    try:
        columns = {role: choose_column(_TABLE, source.columns, role, named.get(role)) for role in roles}
    except DataError as error:
        error.option = "columns"
        raise
    rows = Table(source, columns)
    with duckdb.connect(config={"threads": 1}) as connection:
        read: pa.Table = connection.sql(rows.interactions(connection, False)).to_arrow_table()
        named_rows = f"SELECT {rows.values['user']} AS name, {source.cell(columns['user'])} AS key"
        table = source.table(connection, Scan())
        query = f"SELECT name, first(key) AS key FROM ({named_rows} FROM {table}) GROUP BY name"
        keys: pa.Table = connection.sql(query).to_arrow_table().combine_chunks()
    if read["user"].null_count:
        raise mistake([rows], "a row breaks a rule")
    owners = read["user"].combine_chunks().dictionary_encode()
    has_item = pc.is_valid(read["item"])
    key = keys["key"].combine_chunks()
    key = key.dictionary_decode() if pa.types.is_dictionary(key.type) else key
    return Baskets(
        key.take(pc.index_in(owners.dictionary, keys["name"].combine_chunks())),
        owners.indices.filter(has_item.combine_chunks()).to_numpy().astype(np.int64),
        read["item"].filter(has_item).to_pylist(),
        None if "value" not in columns else read["value"].filter(has_item).to_numpy(),
    )
