"""Several baskets of items."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa


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
