"""A layer under construction, from operations; and how convolutions and pooling become one."""

from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from typing import Any

import numpy as np

from widenet.frameworks.operations import Convolve, Input, Padding, Pool, Recur
from widenet.plan.windows import Shape


class UnsupportedError(Exception):
    """Why an operation has no counterpart."""


@dataclass
class FoldedLayer:
    """A layer as far as it is known.

    shape: of its units, (units,) or channels and axes; None for an input of unknown width. weights: [units or
    filters, inputs] a source.
    document: what a convolution or a pooling layer says of itself. pooled: the source of a pooling layer.
    skip: layers that are added.
    own: of a recurrent layer, the weights [G, units] of the state before. taken: of an output without
    weights, the layer whose units it takes.
    """

    name: str
    shape: Shape | None
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    bias: np.ndarray | None = None
    activation: str | dict[str, Any] = "linear"
    dropout: float = 0.0
    given: Input | None = None
    document: dict[str, Any] = field(default_factory=dict)
    pooled: str | None = None
    skip: list[str] = field(default_factory=list)
    own: np.ndarray | None = None
    taken: str | None = None

    @property
    def width(self) -> int | None:
        """The number of its units."""
        return None if self.shape is None else prod(self.shape)

    @property
    def is_sparse(self) -> bool:
        """Whether it is an input whose examples are lists of features."""
        return self.given is not None and self.given.is_sparse

    @property
    def is_open(self) -> bool:
        """Whether it still gives bare sums, to which units of other layers may have been added."""
        is_plain = self.given is None and self.pooled is None and self.own is None and self.taken is None
        return is_plain and self.activation == "linear" and not self.dropout

    @property
    def sources(self) -> list[str]:
        """The names of the layers that it takes its input from, and of those that it adds."""
        return [*self.weights, *(name for name in (self.pooled, self.taken) if name), *self.skip]

    def call_source(self, before: str, after: str) -> None:
        """Take a source by another name."""
        self.weights = {after if name == before else name: weight for name, weight in self.weights.items()}
        self.skip = [after if name == before else name for name in self.skip]
        self.pooled, self.taken = (after if name == before else name for name in (self.pooled, self.taken))

    def add_weight(self, source: str, weight: np.ndarray) -> None:
        """Weights from a source, which may come twice."""
        self.weights[source] = self.weights[source] + weight if source in self.weights else weight

    def add_bias(self, shift: np.ndarray) -> None:
        """A shift of the sums."""
        self.bias = shift if self.bias is None else self.bias + shift


@dataclass
class Piece:
    """A layer's units as they flow on, times a scale and plus a shift, [units] each, that the next weights
    will take up.

    turned: the operation that flattened them with the channels fastest, as no layer of ours gives them; empty
    where none did.
    """

    layer: FoldedLayer
    scale: np.ndarray | None = None
    shift: np.ndarray | None = None
    turned: str = ""

    @property
    def is_bare(self) -> bool:
        """Whether they flow on as the layer gives them."""
        return self.scale is None and self.shift is None and not self.turned


def channels_first(weight: np.ndarray, pieces: list[Piece]) -> np.ndarray:
    """Weights [units, inputs] for the pieces as layers give them; among them, some were flattened with the
    channels fastest.
    """
    parts, start = [], 0
    for turned, together in groupby(pieces, lambda piece: piece.turned):
        shapes = [piece.layer.shape or () for piece in together]
        width = sum(prod(shape) for shape in shapes)
        part = weight[:, start : start + width]
        start += width
        if turned:
            placed = part.reshape(len(weight), *shapes[0][1:], sum(shape[0] for shape in shapes))
            part = np.moveaxis(placed, -1, 1).reshape(len(weight), -1)
        parts.append(part)
    return np.concatenate(parts, axis=1)


def by_channel(numbers: np.ndarray | None, channels: int) -> np.ndarray | None:
    """Numbers of units as one for each channel; raises UnsupportedError where those of a channel differ."""
    if numbers is None:
        return None
    each = numbers.reshape(channels, -1)
    if (each != each[:, :1]).any():
        raise UnsupportedError("a scale or shift of single places")
    return np.ascontiguousarray(each[:, 0])


def spread(numbers: np.ndarray | float, channels: int, positions: int) -> np.ndarray:
    """Numbers [1], [channels] or [units] as one for each channel's positions; float32 [channels *
    positions].
    """
    flat = np.asarray(numbers, np.float32).reshape(-1)
    if flat.size not in (1, channels, channels * positions):
        raise UnsupportedError(f"a scale or shift of {flat.size} numbers over {channels} units or channels")
    return (
        np.broadcast_to(flat, channels * positions)
        if flat.size == 1
        else np.repeat(flat, channels * positions // flat.size)
    )


def convolved(name: str, step: Convolve, pieces: list[Piece]) -> FoldedLayer:
    """The layer of a convolution over some pieces, channels beside channels."""
    filters, channels, *kernel = step.weight.shape
    shapes = [piece.layer.shape or () for piece in pieces]
    if any(len(shape) != 1 + len(kernel) or shape[1:] != shapes[0][1:] for shape in shapes):
        raise UnsupportedError("a convolution over units without channels and as many axes")
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
        if piece.shift is not None and piece.shift.any():
            if padding == "same" or any(padding):
                raise UnsupportedError(
                    "a shift of several layers before a convolution, whose padding it would not reach"
                )
            shift = piece.shift.reshape(part.shape[1], -1)
            if (shift != shift[:, :1]).any():
                raise UnsupportedError("a convolution over units that were shifted one by one")
            layer.add_bias(part.sum(axis=tuple(range(2, part.ndim))) @ shift[:, 0])
        scale = np.ones(1, np.float32) if piece.scale is None else piece.scale.reshape(part.shape[1], -1)
        if piece.turned or (scale != scale[..., :1]).any():
            raise UnsupportedError("a convolution over units that were flattened, or scaled one by one")
        each = scale if scale.ndim == 1 else np.repeat(scale[:, 0], prod(kernel))
        layer.add_weight(piece.layer.name, part.reshape(filters, -1) * each)
    return layer


def recurrent(name: str, step: Recur, pieces: list[Piece]) -> FoldedLayer:
    """The recurrent layer over one piece."""
    piece, *others = pieces
    units = step.own.shape[1]
    if (
        others
        or not piece.is_bare
        or piece.layer.width != step.weight.shape[1]
        or len(step.own) != len(step.weight)
    ):
        raise UnsupportedError(
            "a recurrent layer of several layers, of changed units, or with weights of another shape"
        )
    layer = FoldedLayer(name, (units,), {piece.layer.name: step.weight}, step.bias, own=step.own)
    layer.document = {"kind": "recurrent", "cell": step.cell, "units": units}
    return layer


def pooled(name: str, step: Pool, pieces: list[Piece]) -> FoldedLayer:
    """The pooling layer over one piece."""
    piece, *others = pieces
    shape = piece.layer.shape or ()
    if others or not piece.is_bare or len(shape) < 2:
        raise UnsupportedError("pooling of several layers, or of units without channels and axes")
    layer = FoldedLayer(name, shape, pooled=piece.layer.name)
    layer.document = {"kind": "pooling", "function": step.function}
    if isinstance(step.function, str):
        is_global = step.kernel is None
        kernel = step.kernel or shape[1:]
        stride = (1,) * len(kernel) if is_global else step.stride
        if len(kernel) != len(shape) - 1:
            raise UnsupportedError("pooling along other axes than those of its source")
        padding, positions = _moves(
            ((0, 0),) * len(kernel) if is_global else step.padding, shape[1:], kernel, stride, step.rounds_up
        )
        layer.shape = (shape[0], *positions)
        layer.document |= {"kernel": list(kernel), "stride": list(stride), "padding": padding}
    return layer


def _reaching(
    padding: tuple[tuple[int, int], ...], places: Shape, kernel: Shape, stride: Shape
) -> tuple[tuple[int, int], ...]:
    """The padding with what the last windows overhang, where their number is rounded up; none begins
    beyond the source.
    """
    found = []
    for (before, after), size, width, step in zip(padding, places, kernel, stride, strict=True):
        last = -(-(size + before + after - width) // step) * step
        if last >= size + before:
            last -= step
        reaches = (
            max(after, last + width - size - before) if (size + before + after - width) % step else after
        )
        found.append((before, reaches))
    return tuple(found)


def _moves(
    padding: Padding, places: Shape, kernel: Shape, stride: Shape, rounds_up: bool
) -> tuple[str | list[int], Shape]:
    """A padding as a network document writes it, and the positions that it gives."""
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
        padding = _reaching(padding, places, kernel, stride)
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
    raise UnsupportedError(f"padding of different widths on two sides, {list(padding)}")
