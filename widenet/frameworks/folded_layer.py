"""The operations that the readers of all frameworks translate networks to, and layers under construction."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from widenet.plan.layout import Shape
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


@dataclass
class FoldedLayer:
    """A layer under construction.

    Attributes:
        name: Name of the layer.
        shape: Shape of the units, (units,) or channels and axes; None for an input of unknown width.
        weights: Weights of each source, [units or filters, inputs].
        bias: Bias, [units or filters].
        activation: Activation, as in a network document.
        dropout: Probability of dropout.
        input_step: Operation of an input.
        document: Settings of a convolution, recurrence or pooling in the network document.
        pooled: Source of a pooling layer.
        skip: Layers whose units are added.
        state_weight: Weights [G, units] of a recurrent layer's previous state.
        units_from: Source of a weightless output.
    """

    name: str
    shape: Shape | None
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    bias: np.ndarray | None = None
    activation: str | dict[str, Any] = "linear"
    dropout: float = 0.0
    input_step: Input | None = None
    document: dict[str, Any] = field(default_factory=dict)
    pooled: str | None = None
    skip: list[str] = field(default_factory=list)
    state_weight: np.ndarray | None = None
    units_from: str | None = None

    @property
    def width(self) -> int | None:
        """Number of units."""
        return None if self.shape is None else prod(self.shape)

    @property
    def is_sparse(self) -> bool:
        """Whether the layer is an input whose examples are lists of features."""
        return self.input_step is not None and self.input_step.is_sparse

    @property
    def is_linear(self) -> bool:
        """Whether the layer computes plain sums, possibly with skips, without activation or dropout."""
        is_plain = (
            self.input_step is None
            and self.pooled is None
            and self.state_weight is None
            and self.units_from is None
        )
        return is_plain and self.activation == "linear" and not self.dropout

    @property
    def sources(self) -> list[str]:
        """Names of the layer's sources and skips."""
        return [*self.weights, *(name for name in (self.pooled, self.units_from) if name), *self.skip]

    def rename_source(self, before: str, after: str) -> None:
        """Replace the name of a source."""
        self.weights = {after if name == before else name: weight for name, weight in self.weights.items()}
        self.skip = [after if name == before else name for name in self.skip]
        self.pooled, self.units_from = (
            after if name == before else name for name in (self.pooled, self.units_from)
        )

    def add_weight(self, source: str, weight: np.ndarray) -> None:
        """Add the weights of a source; those of a repeated source are summed."""
        self.weights[source] = self.weights[source] + weight if source in self.weights else weight

    def add_bias(self, shift: np.ndarray) -> None:
        """Add a shift to the bias."""
        self.bias = shift if self.bias is None else self.bias + shift


@dataclass
class Piece:
    """The units of a layer, which may have another order.

    Attributes:
        layer: The layer.
        flattened_by: Operation that flattened the units with the channels fastest, unlike widenet's layers;
            empty if there is none.
    """

    layer: FoldedLayer
    flattened_by: str = ""


def channels_first(weight: np.ndarray, pieces: list[Piece]) -> np.ndarray:
    """Reorder weights [units, inputs] for pieces that were flattened with the channels fastest."""
    parts, start = [], 0
    for flattened_by, group in groupby(pieces, lambda piece: piece.flattened_by):
        shapes = [piece.layer.shape or () for piece in group]
        width = sum(prod(shape) for shape in shapes)
        part = weight[:, start : start + width]
        start += width
        if flattened_by:
            placed = part.reshape(len(weight), *shapes[0][1:], sum(shape[0] for shape in shapes))
            part = np.moveaxis(placed, -1, 1).reshape(len(weight), -1)
        parts.append(part)
    return np.concatenate(parts, axis=1)


def spread(numbers: np.ndarray | float, channels: int) -> np.ndarray:
    """Expand numbers [1] or [channels] to one per channel, float32 [channels]."""
    flat = np.asarray(numbers, np.float32).reshape(-1)
    if flat.size not in (1, channels):
        raise UnsupportedError(f"a scale or shift of {flat.size} numbers over {channels} units or channels")
    return np.broadcast_to(flat, channels)


def convolved(name: str, step: Convolve, pieces: list[Piece]) -> FoldedLayer:
    """Return the layer of a convolution over some pieces, whose channels are concatenated."""
    filters, channels, *kernel = step.weight.shape
    shapes = [piece.layer.shape or () for piece in pieces]
    if any(len(shape) != 1 + len(kernel) or shape[1:] != shapes[0][1:] for shape in shapes):
        raise UnsupportedError("a convolution over units without channels or with another number of axes")
    if sum(shape[0] for shape in shapes) != channels:
        raise UnsupportedError(
            f"a convolution over {sum(shape[0] for shape in shapes)} channels with weights for {channels}"
        )
    padding, positions = _moves(step.padding, shapes[0][1:], tuple(kernel), step.stride, rounds_up=False)
    layer = FoldedLayer(name, (filters, *positions), bias=step.bias)
    layer.document = {
        "kind": "convolution",
        "filters": filters,
        "kernel": kernel,
        "stride": list(step.stride),
        "padding": padding,
    }
    edges = np.cumsum([shape[0] for shape in shapes])[:-1]
    for piece, part in zip(pieces, np.split(step.weight, edges, axis=1), strict=True):
        if piece.flattened_by:
            raise UnsupportedError("a convolution over flattened units")
        layer.add_weight(piece.layer.name, part.reshape(filters, -1))
    return layer


def recurrent(name: str, step: Recur, pieces: list[Piece]) -> FoldedLayer:
    """Return the recurrent layer over one piece."""
    piece, *others = pieces
    units = step.state_weight.shape[1]
    if (
        others
        or piece.flattened_by
        or piece.layer.width != step.weight.shape[1]
        or len(step.state_weight) != len(step.weight)
    ):
        raise UnsupportedError("a recurrent layer over several layers, or with weights of another shape")
    layer = FoldedLayer(
        name, (units,), {piece.layer.name: step.weight}, step.bias, state_weight=step.state_weight
    )
    layer.document = {"kind": "recurrent", "cell": step.cell, "units": units}
    return layer


def pooled(name: str, step: Pool, pieces: list[Piece]) -> FoldedLayer:
    """Return the pooling layer over one piece."""
    piece, *others = pieces
    shape = piece.layer.shape or ()
    if others or piece.flattened_by or len(shape) < 2:
        raise UnsupportedError("pooling of several layers, or of units without channels and axes")
    layer = FoldedLayer(name, shape, pooled=piece.layer.name)
    layer.document = {"kind": "pooling", "function": step.function}
    if isinstance(step.function, str):
        is_global = step.kernel is None
        kernel = step.kernel or shape[1:]
        stride = (1,) * len(kernel) if is_global else step.stride
        if len(kernel) != len(shape) - 1:
            raise UnsupportedError("pooling along axes that its source does not have")
        padding, positions = _moves(
            ((0, 0),) * len(kernel) if is_global else step.padding, shape[1:], kernel, stride, step.rounds_up
        )
        layer.shape = (shape[0], *positions)
        layer.document |= {"kernel": list(kernel), "stride": list(stride), "padding": padding}
    return layer


def _extended(
    padding: tuple[tuple[int, int], ...], places: Shape, kernel: Shape, stride: Shape
) -> tuple[tuple[int, int], ...]:
    """Extend a padding to cover the last windows when their number is rounded up.

    No window starts beyond the source.
    """
    extended = []
    for (before, after), size, width, step in zip(padding, places, kernel, stride, strict=True):
        last = -(-(size + before + after - width) // step) * step
        if last >= size + before:
            last -= step
        end = max(after, last + width - size - before) if (size + before + after - width) % step else after
        extended.append((before, end))
    return tuple(extended)


def _moves(
    padding: Padding, places: Shape, kernel: Shape, stride: Shape, rounds_up: bool
) -> tuple[str | list[int], Shape]:
    """Return a padding in the form of a network document, and the positions of the windows."""
    same = tuple(-(-size // step) for size, step in zip(places, stride, strict=True))
    if padding == "same":
        return "same", same
    assert not isinstance(padding, str)
    room = [
        size + before + after - width
        for size, (before, after), width in zip(places, padding, kernel, strict=True)
    ]
    if min(room) < 0:
        raise UnsupportedError("a kernel larger than its source and the padding")
    if rounds_up and any(size % step for size, step in zip(room, stride, strict=True)):
        padding = _extended(padding, places, kernel, stride)
        return _moves(padding, places, kernel, stride, rounds_up=False)
    positions = tuple(size // step + 1 for size, step in zip(room, stride, strict=True))
    if all(before == after for before, after in padding):
        return [before for before, _ in padding], positions
    needed = [
        max(0, (size - 1) * step + width - room)
        for size, step, width, room in zip(same, stride, kernel, places, strict=True)
    ]
    if list(padding) == [(total // 2, total - total // 2) for total in needed]:
        return "same", same
    raise UnsupportedError(f"padding that differs between the two sides, {list(padding)}")
