"""Constants, dimensions and attributes of the values and nodes in an ONNX file."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


def dimensions(model: Any) -> dict[str, tuple[int | None, ...]]:
    """Return the dimensions of all values with a known shape; None for an unknown dimension."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            shapes[value.name] = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
    return shapes


def constant(node: Any) -> np.ndarray | None:
    """Return the numbers of a Constant node; None for texts, sparse tensors and other nodes."""
    if node.op_type != "Constant":
        return None
    (attribute,) = node.attribute
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return numpy_helper.to_array(value)
    dtypes = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    return np.asarray(value, dtypes[attribute.name]) if attribute.name in dtypes else None


def attributes_of(node: Any) -> dict[str, Any]:
    """Return a node's attributes by name."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
