"""What an ONNX file says of its values and nodes: constants, dimensions and attributes."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


def dimensions(model: Any) -> dict[str, tuple[int | None, ...]]:
    """The dimensions of every value of which they are known; None for one that is not."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    found = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            found[value.name] = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims)
    return found


def constant(node: Any) -> np.ndarray | None:
    """The numbers of a Constant node by its only attribute; None for texts, sparse tensors and other
    nodes.
    """
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
    """A node's attributes by name."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
