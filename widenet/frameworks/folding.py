"""From operations to layers: activations, shifts and dropout join the layer before them, concatenations
become several sources.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from widenet.errors import DataError
from widenet.frameworks.folded_documents import activation_kind, imported, plain_name
from widenet.frameworks.folded_layer import (
    FoldedLayer,
    Piece,
    UnsupportedError,
    by_channel,
    channels_first,
    convolved,
    pooled,
    recurrent,
    spread,
)
from widenet.frameworks.operations import (
    Activate,
    Add,
    Affine,
    Convolve,
    Dense,
    Drop,
    Input,
    Join,
    Operation,
    Operations,
    Pool,
    Recur,
    Same,
    Unknown,
)
from widenet.interop.imported import Imported

_MOST_IDENTITIES = 4096
"""Units or channels at most of a layer that only hands on what it gets: its weights are the square of
them.
"""


def folded(where: str, operations: Operations) -> Imported:
    """The network of some operations; raises DataError that names every operation without a counterpart."""
    return _Folding(where, operations).run()


class _Folding:
    def __init__(self, where: str, operations: Operations) -> None:
        self.where, self.operations = where, operations
        self.uses = Counter(source for step in operations.steps for source in operations.sources(step))
        self.uses.update(operations.outputs.values())
        self.passed_on = {
            step.name: operations.sources(step)[0] for step in operations.steps if _passes_on(step)
        }
        self.values: dict[str, list[Piece]] = {}
        self.names: set[str] = set()

    def run(self) -> Imported:
        problems = []
        for step in self.operations.steps:
            if any(source not in self.values for source in self.operations.sources(step)):
                continue  # what it takes is among the problems
            try:
                self.values[step.name] = self._value(step)
            except UnsupportedError as why:
                problems.append(f'"{step.name}" ({why})')
        outputs = []
        for name, source in self.operations.outputs.items() if not problems else []:
            try:
                outputs.append(self._output(name, source))
            except UnsupportedError as why:
                problems.append(f'output "{name}" ({why})')
        if problems:
            count = f"{len(problems)} layers have" if len(problems) > 1 else "a layer has"
            raise DataError(
                f"{self.where}: {count} no counterpart: {', '.join(problems)}. docs/interchange.md lists what"
                " can be imported."
            )
        return imported(self.where, self._layers(), outputs)

    def _value(self, step: Operation) -> list[Piece]:
        match step:
            case Unknown(kind=kind):
                raise UnsupportedError(kind)
            case Input(name=name, width=width, shape=shape):
                return [
                    Piece(FoldedLayer(self._unique(name), shape or ((width,) if width else None), given=step))
                ]
            case Dense(name=name, source=source, weight=weight, bias=bias):
                return [Piece(self._dense(name, self.values[source], weight, bias))]
            case Convolve() | Pool() | Recur():
                return [Piece(self._over_axes(step))]
            case Same(source=source, channels_last=True):
                return [
                    replace(piece, turned=step.name) if len(piece.layer.shape or ()) > 1 else piece
                    for piece in self.values[source]
                ]
            case Same(source=source, shape=shape):
                return _in_the_same_axes(self.values[source], shape)
            case Join(sources=sources):
                return [piece for source in sources for piece in self.values[source]]
            case Add(name=name, sources=sources):
                return [Piece(self._sum(name, sources))]
            case Affine(source=source, scale=scale, shift=shift):
                return self._affine(source, scale, shift)
            case Activate():
                return self._activated(step)
            case Drop(source=source, probability=probability):
                return self._dropped(source, probability)

    def _over_axes(self, step: Convolve | Pool | Recur) -> FoldedLayer:
        """The layer of a convolution, of windows or along a sequence."""
        make: Any = (
            convolved if isinstance(step, Convolve) else pooled if isinstance(step, Pool) else recurrent
        )
        pieces = self.values[step.source]
        if _must_be_whole(step, pieces):
            before = f"{step.name} before"
            pieces = self.values[before] = [Piece(self._whole(before, pieces))]
        layer: FoldedLayer = make(self._unique(step.name), step, pieces)
        return layer

    def _dense(
        self, name: str, pieces: list[Piece], weight: np.ndarray, bias: np.ndarray | None
    ) -> FoldedLayer:
        if len(pieces) == 1 and pieces[0].layer.shape is None:
            pieces[0].layer.shape = (weight.shape[1],)
        widths = [piece.layer.width or 0 for piece in pieces]
        if 0 in widths or sum(widths) != weight.shape[1]:
            raise DataError(
                f'{self.where}: "{name}" must have a weight for each of its {sum(widths)} inputs; got'
                f" {weight.shape[1]}."
            )
        if any(piece.turned for piece in pieces):
            weight = channels_first(weight, pieces)
        layer = FoldedLayer(self._unique(name), (len(weight),), bias=bias)
        for piece, part in zip(pieces, np.split(weight, np.cumsum(widths)[:-1], axis=1), strict=True):
            if piece.shift is not None:
                layer.add_bias(part @ piece.shift)
            layer.add_weight(piece.layer.name, part if piece.scale is None else part * piece.scale)
        return layer

    def _sum(self, name: str, sources: tuple[str, ...]) -> FoldedLayer:
        """Bare products become one layer of several sources; to another layer of bare sums, units are
        added.
        """
        widths = {piece.layer.width for source in sources for piece in self.values[source]}
        if (
            len(widths) > 1
            or any(len(self.values[source]) > 1 for source in sources)
            or len(set(sources)) < len(sources)
        ):
            raise UnsupportedError("a sum of different widths, of joined layers, or of a layer with itself")
        own = [self._own(source) for source in sources]
        if all(layer is not None and not layer.document and not layer.skip for layer in own):
            total = FoldedLayer(self._unique(name), (widths.pop() or 0,))
            for layer in own:
                assert layer is not None
                for before, weight in layer.weights.items():
                    total.add_weight(before, weight)
                if layer.bias is not None:
                    total.add_bias(layer.bias)
            return total
        place = next((place for place in reversed(range(len(own))) if own[place] is not None), None)
        others = [self.values[source][0] for number, source in enumerate(sources) if number != place]
        if any(other.layer.is_sparse for other in others):
            raise UnsupportedError("a sum with a sparse input")
        if place is None or not all(other.is_bare for other in others):
            return self._whole(name, [self.values[source][0] for source in sources])
        total = own[place] or FoldedLayer(name, None)
        total.skip += [other.layer.name for other in others]
        return total

    def _whole(self, name: str, pieces: list[Piece]) -> FoldedLayer:
        """A layer that gives the sum of some pieces as they flow on, with their scales and shifts: by
        weights of an identity.
        """
        shape = pieces[0].layer.shape
        if shape is None or any(
            piece.turned or piece.layer.shape != shape or piece.layer.is_sparse for piece in pieces
        ):
            raise UnsupportedError(
                "a sum, scale or shift of a sparse input, or of units in several orders or shapes"
            )
        channels, *places = shape
        if channels > _MOST_IDENTITIES:
            raise UnsupportedError(
                f"a sum, scale or shift over more than {_MOST_IDENTITIES:,} units that no layer with weights"
                " can take up"
            )
        whole = FoldedLayer(self._unique(name), shape)
        if places:
            ones = [1] * len(places)
            whole.document = {
                "kind": "convolution",
                "filters": channels,
                "kernel": ones,
                "stride": ones,
                "padding": [0] * len(places),
            }
        for piece in pieces:
            scale, shift = (by_channel(numbers, channels) for numbers in (piece.scale, piece.shift))
            whole.add_weight(
                piece.layer.name, np.diag(np.ones(channels, np.float32) if scale is None else scale)
            )
            if shift is not None:
                whole.add_bias(shift)
        return whole

    def _own(self, source: str) -> FoldedLayer | None:
        """The layer that a value is, where nobody else uses it and it still gives bare sums."""
        piece, *others = self.values[source]
        return (
            piece.layer
            if not others and piece.is_bare and piece.layer.is_open and self._is_alone(source)
            else None
        )

    def _affine(self, source: str, scale: np.ndarray | float, shift: np.ndarray | float) -> list[Piece]:
        piece, *others = self.values[source]
        if others or piece.layer.shape is None or piece.turned:
            raise UnsupportedError("a scale or shift of several layers, or of an input of unknown width")
        channels, *places = piece.layer.shape
        own = self._own(source)
        if own is not None and not own.skip:
            own_scale, own_shift = (spread(numbers, channels, 1) for numbers in (scale, shift))
            own.weights = {name: weight * own_scale[:, None] for name, weight in own.weights.items()}
            own.bias = own_shift if own.bias is None else own.bias * own_scale + own_shift
            return [Piece(own)]
        if piece.layer.is_sparse:
            raise UnsupportedError("a scale or shift of a sparse input")
        all_scale, all_shift = (spread(numbers, channels, prod(places)) for numbers in (scale, shift))
        before_scale = 1.0 if piece.scale is None else piece.scale
        before_shift = 0.0 if piece.shift is None else piece.shift
        return [Piece(piece.layer, before_scale * all_scale, before_shift * all_scale + all_shift)]

    def _activated(self, step: Activate) -> list[Piece]:
        pieces = self.values[step.source]
        if step.activation == "linear":
            return pieces
        if step.by_place and any(prod((piece.layer.shape or ())[1:]) > 1 for piece in pieces):
            raise UnsupportedError("a softmax over the channels of each place")
        if step.is_logarithm and not self._ends(step.name):
            raise UnsupportedError("the logarithm of a softmax, which only an output can do without")
        own = self._own(step.source)
        if own is None and self._ends(step.name) and self._can_be_taken(pieces):
            taken = pieces[0].layer
            return [
                Piece(
                    FoldedLayer(
                        self._unique(step.name), taken.shape, activation=step.activation, taken=taken.name
                    )
                )
            ]
        if own is None:
            raise UnsupportedError(
                f"an activation, {activation_kind(step.activation)}, that follows no layer of its own with"
                " weights"
            )
        own.activation = step.activation
        return [Piece(own)]

    def _dropped(self, source: str, probability: float) -> list[Piece]:
        piece, *others = self.values[source]
        if (
            not others
            and piece.is_bare
            and not piece.layer.is_sparse
            and self._is_alone(source)
            and 0 <= probability < 1
        ):
            piece.layer.dropout = probability
        return self.values[source]

    def _is_alone(self, name: str) -> bool:
        """Whether one operation or output uses a value, and none uses it under the names that it had
        before.
        """
        return self.uses[name] == 1 and (name not in self.passed_on or self._is_alone(self.passed_on[name]))

    def _ends(self, name: str) -> bool:
        """Whether an operation is the last one before an output."""
        if self.uses[name] != 1 or name in self.operations.outputs.values():
            return self.uses[name] == 1
        user = next(step for step in self.operations.steps if name in self.operations.sources(step))
        return isinstance(user, Same | Drop) and self._ends(user.name)

    def _can_be_taken(self, pieces: list[Piece]) -> bool:
        """Whether an output can take the units of a value as they are."""
        piece, *others = pieces
        return not others and piece.is_bare and piece.layer.given is None

    def _output(self, name: str, source: str) -> FoldedLayer:
        if not self._can_be_taken(self.values[source]):
            raise UnsupportedError(
                "a network must end in the units of a layer, not in several, in an input, or in scaled or"
                " shifted ones"
            )
        layer = self.values[source][0].layer
        ends = sum(self.values[each][0].layer is layer for each in self.operations.outputs.values())
        if (
            layer.document
            or layer.skip
            or ends > 1
            or any(layer.name in other.sources for other in self._layers())
        ):
            return self._taking(name, layer)
        layer.dropout = 0.0
        if plain_name(name) != layer.name:
            layer.name = self._unique(name)
        return layer

    def _taking(self, name: str, layer: FoldedLayer) -> FoldedLayer:
        """An output that takes the units of a layer that cannot be one, and the name if the layer has it."""
        if layer.name == plain_name(name):
            inside = self._unique(f"{name} inside")
            for user in self._layers():
                user.call_source(layer.name, inside)
            self.names.remove(layer.name)
            layer.name = inside
        taking = FoldedLayer(self._unique(name), layer.shape, taken=layer.name)
        self.values[f"{name} as an output"] = [Piece(taking)]
        return taking

    def _layers(self) -> list[FoldedLayer]:
        return list(
            {piece.layer.name: piece.layer for pieces in self.values.values() for piece in pieces}.values()
        )

    def _unique(self, name: str) -> str:
        """A name that a layer may have, and a field."""
        plain = plain_name(name)
        candidates: Iterable[str] = (
            plain,
            *(f"{plain} {number}" for number in range(2, len(self.names) + 3)),
        )
        chosen = next(each for each in candidates if each not in self.names and each not in ("id", "weight"))
        self.names.add(chosen)
        return chosen


def _must_be_whole(step: Operation, pieces: list[Piece]) -> bool:
    """Whether an operation over channels and axes cannot itself take up the scale or shift of what it
    takes.
    """
    if any(piece.turned or len(piece.layer.shape or ()) < 2 for piece in pieces) or len(pieces) > 1:
        return False
    shift = pieces[0].shift
    padded = isinstance(step, Convolve) and (step.padding == "same" or any(map(any, step.padding)))
    return (isinstance(step, Pool) and not pieces[0].is_bare) or (
        padded and shift is not None and bool(shift.any())
    )


def _passes_on(step: Operation) -> bool:
    """Whether an operation gives the units of its source as they are."""
    match step:
        case Same() | Drop() | Activate(activation="linear"):
            return True
        case Join(sources=sources):
            return len(sources) == 1
    return False


def _in_the_same_axes(pieces: list[Piece], shape: tuple[int, ...] | None) -> list[Piece]:
    """The pieces, whose channels and axes a file says to be those of `shape`, or flat."""
    axes = [piece.layer.shape or () for piece in pieces]
    if shape is not None and any(len(each) > 1 for each in axes):
        together = (sum(each[0] for each in axes), *axes[0][1:])
        points = all(prod(each[1:]) == 1 for each in (together, shape)) and together[0] == shape[0]
        if together != shape and not points:
            raise UnsupportedError(f"units {list(together)} that become {list(shape)}")
    return pieces
