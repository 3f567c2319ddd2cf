"""Caffe's convolutions, pooling and normalization read."""

from collections.abc import Callable
from typing import Any

import numpy as np

from widenet.frameworks.operations import Convolve, Operation, Pool, Unknown, whole_filters

_MAX, _AVERAGE = 0, 1
_FLOOR = 1
_WITHIN_CHANNEL = 1


def convolution(
    name: str, written: Any, source: str, weights: Callable[[int], list[np.ndarray]]
) -> Operation:
    """A convolution. weights: gives the layer's blobs, of which there must be so many."""
    has_bias = written.bias_term or not written.HasField("bias_term")
    weight, *bias = weights(1 + has_bias)
    axes = weight.ndim - 2
    weight = whole_filters(
        weight, max(1, written.group), _per_axis(written, "dilation", list(written.dilation), axes, 1)
    )
    stride = _per_axis(written, "stride", list(written.stride), axes, 1)
    pad = _per_axis(written, "pad", list(written.pad), axes, 0)
    return Convolve(
        name,
        source,
        weight,
        bias[0].reshape(-1) if bias else None,
        stride,
        tuple((size, size) for size in pad),
    )


def pooling(name: str, written: Any, source: str) -> Operation:
    """The largest or the mean of windows, whose number Caffe rounds up unless round_mode is FLOOR."""
    if written.pool not in (_MAX, _AVERAGE):
        return Unknown(name, "Pooling by chance")
    function = "max" if written.pool == _MAX else "average"
    if written.global_pooling:
        return Pool(name, source, function)
    kernel, stride, pad = (
        _per_axis(written, key, [getattr(written, whole)] if written.HasField(whole) else [], 2, default)
        for key, whole, default in (("kernel", "kernel_size", 1), ("stride", "stride", 1), ("pad", "pad", 0))
    )
    if function == "average" and any(pad):
        return Unknown(name, "Pooling by means that count the padding")
    return Pool(
        name,
        source,
        function,
        kernel,
        stride,
        tuple((size, size) for size in pad),
        rounds_up=written.round_mode != _FLOOR,
    )


def normalization(name: str, written: Any, source: str) -> Operation:
    """Local response normalization across channels."""
    defaults = {"local_size": 5, "alpha": 1.0, "beta": 0.75, "k": 1.0}
    size, alpha, beta, k = (
        getattr(written, key) if written.HasField(key) else default for key, default in defaults.items()
    )
    if written.norm_region == _WITHIN_CHANNEL or size % 2 == 0:
        return Unknown(name, "LRN within channels, or of an even size")
    return Pool(name, source, {"kind": "lrn", "n": size, "alpha": alpha, "beta": beta, "k": k})


def _per_axis(written: Any, key: str, sizes: list[int], axes: int, default: int) -> tuple[int, ...]:
    """One number an axis, from a list of one or all, or from KEY_h and KEY_w."""
    if key != "dilation" and (written.HasField(f"{key}_h") or written.HasField(f"{key}_w")):
        return (getattr(written, f"{key}_h") or default, getattr(written, f"{key}_w") or default)
    sizes = sizes or [default]
    return tuple(sizes * axes) if len(sizes) == 1 else tuple(sizes)
