"""Import of Caffe's convolutions, poolings and normalizations."""

from collections.abc import Callable
from typing import Any

import numpy as np

from widenet.frameworks.operations import Convolve, Operation, Pool, Unknown, whole_filters

_MAX, _AVERAGE = 0, 1
_FLOOR = 1
_WITHIN_CHANNEL = 1


def convolution(
    name: str, parameter: Any, source: str, weights: Callable[[int], list[np.ndarray]]
) -> Operation:
    """Return the operation of a convolution.

    Args:
        name: Name of the operation.
        parameter: The layer's ConvolutionParameter.
        source: Name of its source.
        weights: Returns the layer's blobs if there are as many as its argument.
    """
    has_bias = parameter.bias_term or not parameter.HasField("bias_term")
    weight, *bias = weights(1 + has_bias)
    axes = weight.ndim - 2
    weight = whole_filters(
        weight, max(1, parameter.group), _per_axis(parameter, "dilation", list(parameter.dilation), axes, 1)
    )
    stride = _per_axis(parameter, "stride", list(parameter.stride), axes, 1)
    pad = _per_axis(parameter, "pad", list(parameter.pad), axes, 0)
    return Convolve(
        name,
        source,
        weight,
        bias[0].reshape(-1) if bias else None,
        stride,
        tuple((size, size) for size in pad),
    )


def pooling(name: str, parameter: Any, source: str) -> Operation:
    """Return the operation of a pooling; Caffe rounds its output size up unless round_mode is FLOOR."""
    if parameter.pool not in (_MAX, _AVERAGE):
        return Unknown(name, "stochastic pooling")
    function = "max" if parameter.pool == _MAX else "average"
    if parameter.global_pooling:
        return Pool(name, source, function)
    kernel, stride, pad = (
        _per_axis(
            parameter, key, [getattr(parameter, whole)] if parameter.HasField(whole) else [], 2, default
        )
        for key, whole, default in (("kernel", "kernel_size", 1), ("stride", "stride", 1), ("pad", "pad", 0))
    )
    if function == "average" and any(pad):
        return Unknown(name, "average pooling that counts the padding")
    return Pool(
        name,
        source,
        function,
        kernel,
        stride,
        tuple((size, size) for size in pad),
        rounds_up=parameter.round_mode != _FLOOR,
    )


def normalization(name: str, parameter: Any, source: str) -> Operation:
    """Return the operation of a local response normalization across channels."""
    defaults = {"local_size": 5, "alpha": 1.0, "beta": 0.75, "k": 1.0}
    size, alpha, beta, k = (
        getattr(parameter, key) if parameter.HasField(key) else default for key, default in defaults.items()
    )
    if parameter.norm_region == _WITHIN_CHANNEL or size % 2 == 0:
        return Unknown(name, "LRN within channels, or of an even size")
    return Pool(name, source, {"kind": "lrn", "n": size, "alpha": alpha, "beta": beta, "k": k})


def _per_axis(parameter: Any, key: str, sizes: list[int], axes: int, default: int) -> tuple[int, ...]:
    """Return one number per axis, from a list of one or all numbers, or from KEY_h and KEY_w."""
    if key != "dilation" and (parameter.HasField(f"{key}_h") or parameter.HasField(f"{key}_w")):
        return (getattr(parameter, f"{key}_h") or default, getattr(parameter, f"{key}_w") or default)
    sizes = sizes or [default]
    return tuple(sizes * axes) if len(sizes) == 1 else tuple(sizes)
