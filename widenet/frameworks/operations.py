"""The operations that the readers of all frameworks translate networks to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from widenet.plan.machine import available_memory
from widenet.plan.numbers import amount


class UnsupportedError(Exception):
    """The reason why an operation has no counterpart."""


_MAX_KERNEL = 2**20
"""Maximum of positions in a kernel with dilations, since a file can claim any size."""


@dataclass(frozen=True)
class Input:
    """An input of the network: dense values [width], or indices of features below `width`.

    Attributes:
        name: Name of the operation.
        width: Width; None if the file does not have it.
        shape: Channels and sizes of axes; None for a flat input.
        is_sparse: Whether the examples are indices of features.
        scale: Scale of a sparse input, as in a network document.
        is_sequence: Whether the indices are ordered.
        last: Number of newest indices that count; None for all.
    """

    name: str
    width: int | None
    shape: tuple[int, ...] | None = None
    is_sparse: bool = False
    scale: str = "none"
    is_sequence: bool = False
    last: int | None = None


@dataclass(frozen=True)
class Dense:
    """x W^T + b, with weight float32 [units, inputs] and bias float32 [units] or None.

    For a sparse input it is the sum of the features' columns.
    """

    name: str
    source: str
    weight: np.ndarray
    bias: np.ndarray | None = None


@dataclass(frozen=True)
class Recur:
    """A GRU or an LSTM over a sequence, with the formulas of `spec.layers`, and its final state.

    Attributes:
        name: Name of the operation.
        source: Its source.
        cell: The kind of cell.
        weight: Input weights of all gates, float32 [G, inputs].
        state_weight: Weights of the previous state, float32 [G, units].
        bias: Biases [4 units], or None. The last ones of a GRU belong to the previous state.
    """

    name: str
    source: str
    cell: Literal["gru", "lstm"]
    weight: np.ndarray
    state_weight: np.ndarray
    bias: np.ndarray | None = None


Padding: TypeAlias = tuple[tuple[int, int], ...] | Literal["same"]
"""Zeros before and after each axis, or "same" with the meaning of a network document."""


@dataclass(frozen=True)
class Convolve:
    """A convolution, with weight float32 [filters, channels, *kernel] and bias float32 [filters] or None."""

    name: str
    source: str
    weight: np.ndarray
    bias: np.ndarray | None
    stride: tuple[int, ...]
    padding: Padding


@dataclass(frozen=True)
class Pool:
    """A pooling.

    Attributes:
        name: Name of the operation.
        source: Its source.
        function: Function, as in a network document.
        kernel: Sizes of the kernel; None for all positions, or for a function without windows.
        stride: Strides.
        padding: Padding.
        rounds_up: Whether a last window may reach beyond the positions and the padding.
    """

    name: str
    source: str
    function: str | dict[str, Any]
    kernel: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    padding: Padding = ()
    rounds_up: bool = False


@dataclass(frozen=True)
class Affine:
    """x * scale + shift, with one number, or one per unit (per channel after a convolution)."""

    name: str
    source: str
    scale: np.ndarray | float = 1.0
    shift: np.ndarray | float = 0.0


@dataclass(frozen=True)
class Activate:
    """An activation, as in a network document.

    Attributes:
        name: Name of the operation.
        source: Its source.
        activation: The activation.
        by_place: Whether a softmax is over the channels of each position rather than over all units.
    """

    name: str
    source: str
    activation: str | dict[str, Any]
    by_place: bool = False


@dataclass(frozen=True)
class Join:
    """The concatenation of values."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Add:
    """The sum of values of the same width."""

    name: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Drop:
    """Dropout, which has no effect outside training."""

    name: str
    source: str
    probability: float


@dataclass(frozen=True)
class Same:
    """The source with another name, or flattened.

    Attributes:
        name: Name of the operation.
        source: Its source.
        channels_last: Whether the source is flattened with the channels fastest.
    """

    name: str
    source: str
    channels_last: bool = False


def whole_filters(weight: np.ndarray, groups: int, dilation: Sequence[int]) -> np.ndarray:
    """Return filters of an ordinary convolution that equals one with groups or dilations.

    Missing weights become zeros.

    Args:
        weight: Weights [filters, channels / groups, *kernel].
        groups: Number of groups.
        dilation: Dilation of each axis.

    Returns:
        Weights [filters, channels, *dilated kernel].

    Raises:
        ValueError: The groups do not divide the filters, or the result is too large.
    """
    filters, inner, *kernel = weight.shape
    if filters % groups:
        raise ValueError(f"{groups} groups must divide the {filters} filters")
    sizes = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    if prod(sizes) > _MAX_KERNEL:
        raise ValueError(f"dilations {list(dilation)} make a kernel of {' x '.join(map(str, sizes))}")
    needed, free = 4 * filters * inner * groups * prod(sizes), available_memory()
    if free is not None and needed > free:
        raise ValueError(f"{groups} groups make filters of {amount(needed)}; {amount(free)} are free")
    expanded = np.zeros((filters, inner * groups, *sizes), weight.dtype)
    places = tuple(slice(None, None, step) for step in dilation)
    size = filters // groups
    for group in range(groups):
        filled = (slice(group * size, (group + 1) * size), slice(group * inner, (group + 1) * inner), *places)
        expanded[filled] = weight[filled[0]]
    return expanded


def leaky(name: str, source: str, slope: float) -> Activate:
    """Return a leaky ReLU, or a ReLU for the slope 0; other slopes than 0 to 1 have no counterpart."""
    if not 0 <= slope <= 1:
        raise UnsupportedError(f"a leaky ReLU with the slope {slope:g}, which is not from 0 to 1")
    return Activate(name, source, {"kind": "leaky_relu", "slope": slope} if slope else "relu")


Operation: TypeAlias = Input | Dense | Recur | Convolve | Pool | Affine | Activate | Join | Add | Drop | Same


@dataclass
class Operations:
    """The operations of a network.

    Attributes:
        steps: Operations, each after its sources.
        outputs: Names of the operations that are outputs, by the names of the outputs.
        problems: Layers without a counterpart, each with the reason.
    """

    steps: list[Operation] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def sources(self, step: Operation) -> tuple[str, ...]:
        """Return the names of an operation's sources."""
        if isinstance(step, Input):
            return ()
        return step.sources if isinstance(step, Join | Add) else (step.source,)
