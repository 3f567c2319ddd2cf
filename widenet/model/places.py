"""Padding of channels, and the values that each number of a kernel reads."""

from collections.abc import Iterator

import numpy as np
from torch import Tensor
from torch.nn import functional

from widenet.plan.windows import Axis, Windows


def padded(values: Tensor, axes: tuple[Axis, ...], value: float = 0.0) -> Tensor:
    """Return values [A, B, *places], padded as the windows need."""
    sides = [side for axis in reversed(axes) for side in (axis.before, axis.after)]
    return functional.pad(values, sides, value=value) if any(sides) else values


def padded_zeros(like: Tensor, sizes: tuple[int, int], axes: tuple[Axis, ...]) -> Tensor:
    """Return zeros [A, B, *places] with padding; sizes are A and B."""
    return like.new_zeros(*sizes, *(axis.before + axis.places + axis.after for axis in axes))


def cropped(values: Tensor, axes: tuple[Axis, ...]) -> Tensor:
    """Return padded values without their padding."""
    for number, axis in enumerate(axes):
        values = values.narrow(2 + number, axis.before, axis.places)
    return values


def reached(values: Tensor, windows: Windows) -> Iterator[Tensor]:
    """Yield, for every number of a kernel, the padded values that it reads: views [A, B, *positions]."""
    for offsets in np.ndindex(*windows.kernel):
        view = values
        for number, (offset, axis) in enumerate(zip(offsets, windows.axes, strict=True)):
            last = offset + (axis.positions - 1) * axis.stride + 1
            view = view[(slice(None),) * (2 + number) + (slice(offset, last, axis.stride),)]
        yield view
