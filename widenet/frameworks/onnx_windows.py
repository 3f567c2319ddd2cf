"""Translation of ONNX's convolutions and poolings to operations."""

from typing import Any

import numpy as np

from widenet.frameworks.operations import Convolve, Operation, Padding, Pool, Unknown, whole_filters


def spatial(
    name: str, node: Any, attributes: dict[str, Any], source: str, constants: list[np.ndarray | None]
) -> Operation:
    """Return the operation of a node over channels and axes.

    Args:
        name: Name of the operation.
        node: The node.
        attributes: Its attributes.
        source: Operation of its first input.
        constants: Its other inputs; None for one that is not constant.
    """
    kind = node.op_type
    if not source or any(constant is None for constant in constants) or len(node.output) > 1:
        return Unknown(name, f"{kind} of another form")
    if kind == "LRN":
        numbers = {"k": ("bias", 1.0), "alpha": ("alpha", 1e-4), "beta": ("beta", 0.75)}
        response = {
            key: float(attributes.get(attribute, default)) for key, (attribute, default) in numbers.items()
        }
        return Pool(name, source, {"kind": "lrn", "n": attributes["size"], **response})
    if kind.startswith("Global"):
        return Pool(name, source, "max" if kind == "GlobalMaxPool" else "average")
    weight, *bias = constants or [None]
    kernel = tuple(attributes.get("kernel_shape", [] if weight is None else weight.shape[2:]))
    stride, padding = tuple(attributes.get("strides", [1] * len(kernel))), _padding(attributes, len(kernel))
    dilation = attributes.get("dilations", [1] * len(kernel))
    if padding is None or (kind != "Conv" and any(step != 1 for step in dilation)):
        return Unknown(name, f"{kind} with dilations or another padding")
    if kind == "Conv":
        assert weight is not None
        weight = whole_filters(weight.astype(np.float32), attributes.get("group", 1), dilation)
        return Convolve(
            name, source, weight, None if not bias else np.asarray(bias[0], np.float32), stride, padding
        )
    if attributes.get("count_include_pad", 0) and padding != ((0, 0),) * len(kernel):
        return Unknown(name, f"{kind} that counts its padding")
    function = "max" if kind == "MaxPool" else "average"
    return Pool(name, source, function, kernel, stride, padding, bool(attributes.get("ceil_mode", 0)))


def _padding(attributes: dict[str, Any], axes: int) -> Padding | None:
    match attributes.get("auto_pad", b"NOTSET"):
        case b"NOTSET":
            pads = attributes.get("pads", [0] * 2 * axes)
            return tuple(zip(pads[:axes], pads[axes:], strict=True))
        case b"SAME_UPPER":
            return "same"
        case b"VALID":
            return ((0, 0),) * axes
    return None
