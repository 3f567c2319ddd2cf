"""Pruned weights in ONNX models: the stored numbers, their columns, and a node that widens them.

Runtimes fold the node into a constant when they load the model, so that only the file is smaller.
"""

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto, helper

from widenet.errors import DataError
from widenet.frameworks.onnx_graph import Graph, weight_name


def numbers_name(weight: str) -> str:
    """Return the name of the stored numbers of a pruned weight."""
    return f"{weight} numbers"


def columns_name(weight: str) -> str:
    """Return the name of the columns of these numbers."""
    return f"{weight} columns"


def add_widened(graph: Graph, weight: str, rows: int, columns: int) -> None:
    """Add a weight [rows, columns] with all its numbers, under the name that the weight has otherwise."""
    zeros = graph.op("ConstantOfShape", graph.whole(rows, columns))
    places = graph.op("Cast", weight_name(columns_name(weight)), to=TensorProto.INT64)
    sources, name = [zeros, places, weight_name(numbers_name(weight))], weight_name(weight)
    graph.nodes.append(helper.make_node("ScatterElements", sources, [name], name=name, axis=1))


def widened_of(
    place: str, weight: str, columns: int, constants: Mapping[str, np.ndarray]
) -> np.ndarray | None:
    """Return a pruned weight of a model with all its numbers; None if the model has no such weight.

    Args:
        place: The file, for messages.
        weight: The weight.
        columns: Length of its rows.
        constants: Constants of the model by name.

    Raises:
        DataError: The numbers do not have a column each, different in a row and below `columns`.
    """
    numbers = constants.get(weight_name(numbers_name(weight)))
    if numbers is None:
        return None
    places = constants.get(weight_name(columns_name(weight)), np.empty(0)).astype(np.int64)
    rising = np.sort(places)
    if (
        numbers.ndim != 2
        or places.shape != numbers.shape
        or (rising[:, :1] < 0).any()
        or (rising[:, -1:] >= columns).any()
        or (rising[:, 1:] == rising[:, :-1]).any()
    ):
        rule = f"must have a column below {columns:,} for each number, different in a row"
        raise DataError(f'{place}: pruned weight "{weight}" {rule}. Export the network again.')
    whole = np.zeros((len(numbers), columns), np.float32)
    np.put_along_axis(whole, places, numbers, axis=1)
    return whole
