"""Convolutions, pooling and batch normalization in plain torch, written from the formulas of the
documents.
"""

import math

import torch
from torch.nn import functional

CONVOLVE = (functional.conv1d, functional.conv2d, functional.conv3d)
PER_CHANNEL = ("bias", "normalization scale", "normalization shift")
FOLLOWING = ("normalization mean", "normalization variance")


def spread(layer, value, num):
    """A setting along each of some axes."""
    return (
        (value if value is not None else spread(layer, layer.kernel, num))
        if isinstance(value, tuple | None)
        else (value,) * num
    )


def sides(layer, places):
    """Kernel, stride, positions and padding on both sides, along each axis."""
    found = []
    num = len(places)
    kernels, strides = spread(layer, layer.kernel, num), spread(layer, layer.stride, num)
    paddings = spread(layer, layer.padding, num)
    for width, kernel, stride, padding in zip(places, kernels, strides, paddings, strict=True):
        if padding == "same":
            total = max((math.ceil(width / stride) - 1) * stride + kernel - width, 0)
            low, high = total // 2, total - total // 2
        elif padding == "dsstne":
            total = kernel - width if width <= kernel else kernel - 1 if stride == 1 else 0
            low, high = math.ceil(total / 2), total // 2
        else:
            low = high = 0 if padding == "valid" else padding
        found.append((kernel, stride, (width + low + high - kernel) // stride + 1, low, high))
    return found


def with_room(x, axes, value=0.0):
    """Values [E, C, *places] with a padding."""
    return functional.pad(x, [side for *_, low, high in reversed(axes) for side in (low, high)], value=value)


def spatial(x, shape):
    """Units as channels and places; a flat layer is one channel."""
    return x.reshape(len(x), *(shape if len(shape) > 1 else (1, *shape)))


def convolved(layer, x, shape, weight):
    """The sums [E, units] of a convolution, and their shape. weight: [channels x kernel, filters]."""
    x = spatial(x, shape)
    axes = sides(layer, x.shape[2:])
    filters = weight.T.reshape(layer.filters, x.shape[1], *(kernel for kernel, *_ in axes))
    found = CONVOLVE[len(axes) - 1](with_room(x, axes), filters, stride=[stride for _, stride, *_ in axes])
    return found.flatten(1), tuple(found.shape[1:])


def windows(layer, x, value):
    """Every window of values [E, C, *places] as [E, C, *positions, kernel]."""
    axes = sides(layer, x.shape[2:])
    x = with_room(x, axes, value)
    for number, (kernel, stride, *_) in enumerate(axes):
        x = x.unfold(2 + number, kernel, stride)
    return x.flatten(2 + len(axes))


def pooled(layer, sources, shapes):
    """The units [E, N] of a pooling layer before any skip, and their shape."""
    first, kind = sources[0], layer.function.kind
    if kind == "maxout":
        shape = shapes[0] if len(set(shapes)) == 1 else (first.shape[1],)
        return torch.stack(sources).max(dim=0).values, shape
    if kind in ("dot_product", "cosine"):
        found = [(first * other).sum(dim=1) for other in sources[1:]]
        if kind == "cosine":
            found = [
                each / ((first.norm(dim=1) + 1e-8) * (other.norm(dim=1) + 1e-8))
                for each, other in zip(found, sources[1:], strict=True)
            ]
        return torch.stack(found, dim=1), (len(found),)
    x = spatial(first, shapes[0])
    if kind == "lrn":
        function, squares = layer.function, x.square()
        before, after = (function.n - 1) // 2, function.n // 2
        sums = [
            squares[:, max(0, channel - before) : channel + after + 1].sum(dim=1)
            for channel in range(x.shape[1])
        ]
        found = x / (function.k + function.alpha / function.n * torch.stack(sums, dim=1)) ** function.beta
    elif kind == "max":
        found = windows(layer, x, -torch.inf).max(dim=-1).values
    else:
        found = windows(layer, x, torch.nan).nanmean(dim=-1)
    return found.flatten(1), tuple(found.shape[1:])


def normalized(spec, z, channels, scale, shift):
    """Sums [E, units] brought to mean 0 and variance 1 by channel; and the batch's mean and variance."""
    x = z.reshape(len(z), channels, -1)
    mean, variance = x.mean(dim=(0, 2), keepdim=True), x.var(dim=(0, 2), unbiased=False, keepdim=True)
    found = (x - mean) / torch.sqrt(variance + spec.epsilon) * scale[:, None] + shift[:, None]
    count = x.shape[0] * x.shape[2]
    return found.reshape(z.shape), (
        mean.flatten().detach(),
        (variance.flatten() * count / max(count - 1, 1)).detach(),
    )
