"""From operations to layers: activations, shifts and dropout join the layer before them, concatenations become several sources."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from widenet.errors import DataError
from widenet.interop.imported import Imported
from widenet.interop.operations import Activate, Add, Affine, Dense, Drop, Input, Join, Operation, Operations, Same, Unknown
from widenet.plan.binding import Width


@dataclass
class _Layer:
    """A layer as far as it is known. weights: [units, width] a source; empty for an input."""

    name: str
    width: int | None
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    bias: np.ndarray | None = None
    activation: str | dict[str, Any] = "linear"
    dropout: float = 0.0
    given: Input | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it still gives bare sums."""
        return self.given is None and self.activation == "linear" and not self.dropout

    def add_bias(self, shift: np.ndarray) -> None:
        self.bias = shift if self.bias is None else self.bias + shift


@dataclass
class _Piece:
    """A layer's units as they flow on, times a scale and plus a shift that the next weights will take up."""

    layer: _Layer
    scale: np.ndarray | None = None
    shift: np.ndarray | None = None

    @property
    def is_bare(self) -> bool:
        return self.scale is None and self.shift is None


class _UnsupportedError(Exception):
    """Why an operation has no counterpart."""


def folded(where: str, operations: Operations) -> Imported:
    """The network of some operations; raises DataError that names every operation without a counterpart."""
    return _Folding(where, operations).run()


class _Folding:
    def __init__(self, where: str, operations: Operations) -> None:
        self.where, self.operations = where, operations
        self.uses = Counter(source for step in operations.steps for source in operations.sources(step))
        self.uses.update(operations.outputs.values())
        self.values: dict[str, list[_Piece]] = {}
        self.names: set[str] = set()

    def run(self) -> Imported:
        problems = []
        for step in self.operations.steps:
            if any(source not in self.values for source in self.operations.sources(step)):
                continue  # what it takes is among the problems
            try:
                self.values[step.name] = self._value(step)
            except _UnsupportedError as why:
                problems.append(f'"{step.name}" ({why})')
        outputs = []
        for name, source in self.operations.outputs.items() if not problems else []:
            try:
                outputs.append(self._output(name, source))
            except _UnsupportedError as why:
                problems.append(f'output "{name}" ({why})')
        if problems:
            count = f"{len(problems)} layers have" if len(problems) > 1 else "a layer has"
            raise DataError(f"{self.where}: {count} no counterpart: {', '.join(problems)}. docs/interchange.md lists what can be imported.")
        return self._imported(outputs)

    def _value(self, step: Operation) -> list[_Piece]:
        match step:
            case Unknown(kind=kind):
                raise _UnsupportedError(kind)
            case Input(name=name, width=width):
                return [_Piece(_Layer(self._unique(name), width, given=step))]
            case Dense(name=name, source=source, weight=weight, bias=bias):
                return [_Piece(self._dense(name, self.values[source], weight, bias))]
            case Same(source=source):
                return self.values[source]
            case Join(sources=sources):
                return [piece for source in sources for piece in self.values[source]]
            case Add(name=name, sources=sources):
                return [_Piece(self._sum(name, sources))]
            case Affine(source=source, scale=scale, shift=shift):
                return self._affine(source, scale, shift)
            case Activate(source=source, activation=activation):
                return self._activated(source, activation)
            case Drop(source=source, probability=probability):
                return self._dropped(source, probability)

    def _dense(self, name: str, pieces: list[_Piece], weight: np.ndarray, bias: np.ndarray | None) -> _Layer:
        if len(pieces) == 1 and pieces[0].layer.width is None:
            pieces[0].layer.width = weight.shape[1]
        widths = [cast(int, piece.layer.width) for piece in pieces]
        if None in widths or sum(widths) != weight.shape[1]:
            raise DataError(f'{self.where}: "{name}" must have a weight for each of its {sum(widths)} inputs; got {weight.shape[1]}.')
        layer = _Layer(self._unique(name), len(weight), bias=bias)
        for piece, part in zip(pieces, np.split(weight, np.cumsum(widths)[:-1], axis=1), strict=True):
            if piece.shift is not None:
                layer.add_bias(part @ piece.shift)
            if piece.scale is not None:
                part = part * piece.scale
            own = piece.layer.name
            layer.weights[own] = layer.weights[own] + part if own in layer.weights else part
        return layer

    def _sum(self, name: str, sources: tuple[str, ...]) -> _Layer:
        total: _Layer | None = None
        for source in sources:
            layer = self._own(source)
            if layer is None or len(sources) != len(set(sources)):
                raise _UnsupportedError("a sum of layers that are no bare products")
            total = total or _Layer(self._unique(name), layer.width)
            if layer.width != total.width:
                raise _UnsupportedError("a sum of different widths")
            for own, weight in layer.weights.items():
                total.weights[own] = total.weights[own] + weight if own in total.weights else weight
            if layer.bias is not None:
                total.add_bias(layer.bias)
        assert total is not None
        return total

    def _own(self, source: str) -> _Layer | None:
        """The layer that a value is, where nobody else uses it and it gives bare sums."""
        (piece, *others) = self.values[source]
        return piece.layer if not others and piece.is_bare and piece.layer.is_plain and self.uses[source] == 1 else None

    def _affine(self, source: str, scale: np.ndarray | float, shift: np.ndarray | float) -> list[_Piece]:
        (piece, *others) = self.values[source]
        if others or piece.layer.width is None:
            raise _UnsupportedError("a scale or shift of several layers, or of an input of unknown width")
        width = piece.layer.width
        for numbers in (scale, shift):
            if np.size(numbers) not in (1, width):
                raise _UnsupportedError(f"a scale or shift of {np.size(numbers)} numbers over {width} units")
        wide_scale, wide_shift = (np.broadcast_to(np.asarray(numbers, np.float32).reshape(-1), width) for numbers in (scale, shift))
        own = self._own(source)
        if own is not None:
            own.weights = {name: weight * wide_scale[:, None] for name, weight in own.weights.items()}
            own.bias = wide_shift if own.bias is None else own.bias * wide_scale + wide_shift
            return [_Piece(own)]
        if piece.layer.given is not None and piece.layer.given.is_sparse:
            raise _UnsupportedError("a scale or shift of a sparse input")
        before_scale = 1.0 if piece.scale is None else piece.scale
        before_shift = 0.0 if piece.shift is None else piece.shift
        return [_Piece(piece.layer, before_scale * wide_scale, before_shift * wide_scale + wide_shift)]

    def _activated(self, source: str, activation: str | dict[str, Any]) -> list[_Piece]:
        if activation == "linear":
            return self.values[source]
        own = self._own(source)
        if own is None:
            raise _UnsupportedError(f"an activation, {_kind(activation)}, that follows no fully connected layer of its own")
        own.activation = activation
        return [_Piece(own)]

    def _dropped(self, source: str, probability: float) -> list[_Piece]:
        (piece, *others) = self.values[source]
        is_dense = piece.layer.given is None or not piece.layer.given.is_sparse
        if not others and piece.is_bare and is_dense and self.uses[source] == 1 and 0 <= probability < 1:
            piece.layer.dropout = probability
        return self.values[source]

    def _output(self, name: str, source: str) -> _Layer:
        (piece, *others) = self.values[source]
        used = any(piece.layer.name in other.weights for other in self._layers())
        if others or not piece.is_bare or piece.layer.given is not None or used:
            raise _UnsupportedError("a network must end in fully connected layers, which feed no others")
        piece.layer.dropout = 0.0
        if _plain(name) != piece.layer.name:
            piece.layer.name = self._unique(name)
        return piece.layer

    def _layers(self) -> list[_Layer]:
        return list({piece.layer.name: piece.layer for pieces in self.values.values() for piece in pieces}.values())

    def _imported(self, outputs: list[_Layer]) -> Imported:
        layers = {layer.name: layer for layer in self._layers()}
        needed = {layer.name for layer in outputs}
        for layer in reversed(layers.values()):
            if layer.name in needed:
                needed |= set(layer.weights)
        found = Imported(name=self.where, layers=[], fields={}, weights={})
        for layer in layers.values():
            if layer.name in needed:
                _describe(found, layer, is_output=any(layer is output for output in outputs))
        return found

    def _unique(self, name: str) -> str:
        """A name that a layer may have, and a field."""
        plain = _plain(name)
        candidates: Iterable[str] = (plain, *(f"{plain} {number}" for number in range(2, len(self.names) + 3)))
        chosen = next(each for each in candidates if each not in self.names and each not in ("id", "weight"))
        self.names.add(chosen)
        return chosen


def _plain(name: str) -> str:
    """A name without what neither layers nor fields may have in theirs."""
    printable = "".join(letter if letter.isprintable() else " " for letter in name.strip("/\\. "))
    return printable.replace("/", ".").replace("\\", ".").encode()[:80].decode(errors="ignore") or "layer"


def _kind(activation: str | dict[str, Any]) -> str:
    return str(activation if isinstance(activation, str) else activation["kind"])


def _describe(found: Imported, layer: _Layer, is_output: bool) -> None:
    """Add a layer's document, its field and its weights."""
    if layer.given is not None:
        document: dict[str, Any] = {"name": layer.name, "kind": "input", "field": layer.name, "scale": layer.given.scale}
        if layer.dropout:
            document["dropout"] = layer.dropout
        if layer.width is None:
            raise DataError(f'{found.name}: the width of the input "{layer.name}" must be known; the file does not say it.')
        found.layers.append(document)
        found.fields[layer.name] = Width(layer.width, "sparse" if layer.given.is_sparse else "dense")
        return
    bias = layer.bias
    common = {"source": list(layer.weights), "activation": layer.activation, "bias": bias is not None}
    if is_output:
        kind = _kind(layer.activation)
        loss = "cross_entropy" if kind in ("softmax", "sigmoid") else "l2"
        found.layers.append({"name": layer.name, "kind": "output", "field": layer.name, "loss": loss, **common})
        found.fields[layer.name] = Width(cast(int, layer.width))
        found.weights[layer.name] = np.concatenate(list(layer.weights.values()), axis=1)
    else:
        more = {"dropout": layer.dropout} if layer.dropout else {}
        found.layers.append({"name": layer.name, "units": layer.width, **common, **more})
        for source, weight in layer.weights.items():
            found.weights[f"{layer.name}/{source}"] = weight
    if bias is not None:
        found.weights[f"{layer.name} bias"] = bias
