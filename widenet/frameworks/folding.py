"""Folding of operations into layers, and the documents, fields and weights of these.

Activations, shifts and dropout join the layer before them, and concatenations become several sources.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from widenet.errors import DataError
from widenet.frameworks.folded_layer import (
    Activate,
    Add,
    Affine,
    Convolve,
    Dense,
    Drop,
    FoldedLayer,
    Input,
    Join,
    Operation,
    Operations,
    Piece,
    Pool,
    Recur,
    Same,
    UnsupportedError,
    channels_first,
    convolved,
    pooled,
    recurrent,
    spread,
)
from widenet.interop.import_network import Imported
from widenet.plan.layout import Width

_MAX_IDENTITY_UNITS = 4096
"""Maximum of units or channels of a layer with identity weights, whose size is their square."""


_ALL_POSITIONS = 2**31 - 1
"""Value of `last` for sequences of any length: the largest number that a document may have."""


def folded(where: str, operations: Operations) -> Imported:
    """Fold operations into a network.

    Raises:
        DataError: Operations have no counterpart; the message lists all of them.
    """
    return _Folding(where, operations).run()


class _Folding:
    def __init__(self, where: str, operations: Operations) -> None:
        self.where, self.operations = where, operations
        self.uses = Counter(source for step in operations.steps for source in operations.sources(step))
        self.uses.update(operations.outputs.values())
        self.aliases = {
            step.name: operations.sources(step)[0] for step in operations.steps if _keeps_units(step)
        }
        self.values: dict[str, list[Piece]] = {}
        self.names: set[str] = set()

    def run(self) -> Imported:
        problems = [*self.operations.problems]
        for step in self.operations.steps:
            if any(source not in self.values for source in self.operations.sources(step)):
                continue  # its source is already among the problems
            try:
                self.values[step.name] = self._value(step)
            except UnsupportedError as reason:
                problems.append(f'"{step.name}" ({reason})')
        outputs = []
        for name, source in self.operations.outputs.items() if not problems else []:
            try:
                outputs.append(self._output(name, source))
            except UnsupportedError as reason:
                problems.append(f'output "{name}" ({reason})')
        if problems:
            raise DataError(f"has layers without a counterpart: {', '.join(problems)}", place=self.where)
        return imported(self.where, self._layers(), outputs)

    def _value(self, step: Operation) -> list[Piece]:
        match step:
            case Input(name=name, width=width, shape=shape):
                return [
                    Piece(
                        FoldedLayer(
                            self._unique(name), shape or ((width,) if width else None), input_step=step
                        )
                    )
                ]
            case Dense(name=name, source=source, weight=weight, bias=bias):
                return [Piece(self._dense(name, self.values[source], weight, bias))]
            case Pool(function=str(), source=source) if len(self.values[source]) > 1:
                return [Piece(pooled(self._unique(step.name), step, [each])) for each in self.values[source]]
            case Convolve() | Pool() | Recur():
                return [Piece(self._over_axes(step))]
            case Same(source=source, channels_last=True):
                return [
                    replace(piece, flattened_by=step.name) if len(piece.layer.shape or ()) > 1 else piece
                    for piece in self.values[source]
                ]
            case Same(source=source):
                return self.values[source]
            case Join(sources=sources):
                return [piece for source in sources for piece in self.values[source]]
            case Add(name=name, sources=sources):
                return [Piece(self._sum(name, sources))]
            case Affine():
                return [Piece(self._affine(step))]
            case Activate():
                return self._activated(step)
            case Drop(source=source, probability=probability):
                return self._dropped(source, probability)

    def _over_axes(self, step: Convolve | Pool | Recur) -> FoldedLayer:
        """Return the layer of a convolution, pooling or recurrence."""
        make: Any = (
            convolved if isinstance(step, Convolve) else pooled if isinstance(step, Pool) else recurrent
        )
        pieces = self.values[step.source]
        if any(piece.layer.shape is None for piece in pieces):
            raise UnsupportedError("an input whose shape the file does not have")
        layer: FoldedLayer = make(self._unique(step.name), step, pieces)
        return layer

    def _dense(
        self, name: str, pieces: list[Piece], weight: np.ndarray, bias: np.ndarray | None
    ) -> FoldedLayer:
        if len(pieces) == 1 and pieces[0].layer.shape is None:
            pieces[0].layer.shape = (weight.shape[1],)
        widths = [piece.layer.width or 0 for piece in pieces]
        if 0 in widths or sum(widths) != weight.shape[1]:
            rule = f"must have a weight for each of its {sum(widths)} inputs"
            raise DataError(rule, place=f'{self.where}: "{name}"', value=weight.shape[1])
        if any(piece.flattened_by for piece in pieces):
            weight = channels_first(weight, pieces)
        layer = FoldedLayer(self._unique(name), (len(weight),), bias=bias)
        for piece, part in zip(pieces, np.split(weight, np.cumsum(widths)[:-1], axis=1), strict=True):
            layer.add_weight(piece.layer.name, part)
        return layer

    def _sum(self, name: str, sources: tuple[str, ...]) -> FoldedLayer:
        """Return the layer of a sum.

        Products that nothing else uses become one layer of several sources. Otherwise units are added to a
        linear layer as skips.
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
        if place is None or any(other.flattened_by for other in others):
            return self._identity(name, [self.values[source][0] for source in sources])
        total = own[place] or FoldedLayer(name, None)
        total.skip += [other.layer.name for other in others]
        return total

    def _identity(self, name: str, pieces: list[Piece]) -> FoldedLayer:
        """Return a layer with identity weights that sums some pieces."""
        shape = pieces[0].layer.shape
        if shape is None or any(
            piece.flattened_by or piece.layer.shape != shape or piece.layer.is_sparse for piece in pieces
        ):
            raise UnsupportedError(
                "a sum, scale or shift of a sparse input, or of units in several orders or shapes"
            )
        channels, *places = shape
        if channels > _MAX_IDENTITY_UNITS:
            raise UnsupportedError(
                f"a sum, scale or shift of more than {_MAX_IDENTITY_UNITS:,} units that does not follow a"
                " layer with weights"
            )
        layer = FoldedLayer(self._unique(name), shape)
        if places:
            ones = [1] * len(places)
            layer.document = {
                "kind": "convolution",
                "filters": channels,
                "kernel": ones,
                "stride": ones,
                "padding": [0] * len(places),
            }
        for piece in pieces:
            layer.add_weight(piece.layer.name, np.eye(channels, dtype=np.float32))
        return layer

    def _own(self, source: str) -> FoldedLayer | None:
        """Return the linear layer of a value if nothing else uses it; otherwise None."""
        piece, *others = self.values[source]
        return (
            piece.layer
            if not (others or piece.flattened_by) and piece.layer.is_linear and self._is_used_once(source)
            else None
        )

    def _affine(self, step: Affine) -> FoldedLayer:
        """Fold a scale and a shift into the linear layer before them, or into one with identity weights."""
        piece, *others = self.values[step.source]
        if others or piece.layer.shape is None:
            raise UnsupportedError("a scale or shift of several layers, or of an input of unknown width")
        scale, shift = (spread(numbers, piece.layer.shape[0]) for numbers in (step.scale, step.shift))
        own = self._own(step.source)
        if own is None or own.skip:
            own = self._identity(step.name, [piece])
        own.weights = {name: weight * scale[:, None] for name, weight in own.weights.items()}
        own.bias = shift if own.bias is None else own.bias * scale + shift
        return own

    def _activated(self, step: Activate) -> list[Piece]:
        pieces = self.values[step.source]
        if step.activation == "linear":
            return pieces
        if step.by_place and any(prod((piece.layer.shape or ())[1:]) > 1 for piece in pieces):
            raise UnsupportedError("a softmax over the channels of each position")
        own = self._own(step.source)
        if own is None and self._is_last(step.name) and self._can_be_output(pieces):
            source = pieces[0].layer
            return [
                Piece(
                    FoldedLayer(
                        self._unique(step.name),
                        source.shape,
                        activation=step.activation,
                        units_from=source.name,
                    )
                )
            ]
        if own is None:
            raise UnsupportedError(
                f"the activation {activation_kind(step.activation)} without a layer with weights before it"
            )
        own.activation = step.activation
        return [Piece(own)]

    def _dropped(self, source: str, probability: float) -> list[Piece]:
        piece, *others = self.values[source]
        if (
            not others
            and not piece.flattened_by
            and not piece.layer.is_sparse
            and self._is_used_once(source)
            and 0 <= probability < 1
        ):
            piece.layer.dropout = probability
        return self.values[source]

    def _is_used_once(self, name: str) -> bool:
        """Return whether exactly one operation or output uses a value, under any of its names."""
        return self.uses[name] == 1 and (name not in self.aliases or self._is_used_once(self.aliases[name]))

    def _is_last(self, name: str) -> bool:
        """Return whether an operation is the last one before an output."""
        if self.uses[name] != 1 or name in self.operations.outputs.values():
            return self.uses[name] == 1
        user = next(step for step in self.operations.steps if name in self.operations.sources(step))
        return isinstance(user, Same | Drop) and self._is_last(user.name)

    def _can_be_output(self, pieces: list[Piece]) -> bool:
        """Return whether a value is the unchanged units of one layer, which an output can take."""
        piece, *others = pieces
        return not others and not piece.flattened_by and piece.layer.input_step is None

    def _output(self, name: str, source: str) -> FoldedLayer:
        if not self._can_be_output(self.values[source]):
            raise UnsupportedError(
                "an output must be the unchanged units of one layer, not an input or several layers"
            )
        layer = self.values[source][0].layer
        ends = sum(self.values[each][0].layer is layer for each in self.operations.outputs.values())
        if (
            layer.document
            or layer.skip
            or ends > 1
            or any(layer.name in other.sources for other in self._layers())
        ):
            return self._weightless_output(name, layer)
        layer.dropout = 0.0
        if plain_name(name) != layer.name:
            layer.name = self._unique(name)
        return layer

    def _weightless_output(self, name: str, layer: FoldedLayer) -> FoldedLayer:
        """Return an output over a layer that cannot be an output itself.

        If the layer has the output's name, the layer is renamed.
        """
        if layer.name == plain_name(name):
            inside = self._unique(f"{name} inside")
            for user in self._layers():
                user.rename_source(layer.name, inside)
            self.names.remove(layer.name)
            layer.name = inside
        output = FoldedLayer(self._unique(name), layer.shape, units_from=layer.name)
        self.values[f"{name} as an output"] = [Piece(output)]
        return output

    def _layers(self) -> list[FoldedLayer]:
        return list(
            {piece.layer.name: piece.layer for pieces in self.values.values() for piece in pieces}.values()
        )

    def _unique(self, name: str) -> str:
        """Return an unused name that is valid for a layer and a field."""
        plain = plain_name(name)
        candidates: Iterable[str] = (
            plain,
            *(f"{plain} {number}" for number in range(2, len(self.names) + 3)),
        )
        chosen = next(each for each in candidates if each not in self.names and each not in ("id", "weight"))
        self.names.add(chosen)
        return chosen


def _keeps_units(step: Operation) -> bool:
    """Return whether an operation returns the units of its source unchanged."""
    match step:
        case Same() | Drop() | Activate(activation="linear"):
            return True
        case Join(sources=sources):
            return len(sources) == 1
    return False


def imported(where: str, layers: list[FoldedLayer], outputs: list[FoldedLayer]) -> Imported:
    """Return the network of the layers that some outputs need.

    Args:
        where: The file of the network.
        layers: All layers, each after its sources.
        outputs: The layers that are outputs.
    """
    needed = {layer.name for layer in outputs}
    for layer in reversed(layers):
        if layer.name in needed:
            needed |= set(layer.sources)
    network = Imported(name=where, layers=[], fields={}, weights={})
    for layer in layers:
        if layer.name in needed:
            _describe(network, layer, is_output=any(layer is output for output in outputs))
    return network


def activation_kind(activation: str | dict[str, Any]) -> str:
    """Return the name of an activation, with or without settings."""
    return str(activation if isinstance(activation, str) else activation["kind"])


def plain_name(name: str) -> str:
    """Return a name without the characters that names of layers and fields may not have."""
    printable = "".join(letter if letter.isprintable() else " " for letter in name.strip("/\\. "))
    return printable.replace("/", ".").replace("\\", ".").encode()[:80].decode(errors="ignore") or "layer"


def _describe(network: Imported, layer: FoldedLayer, is_output: bool) -> None:
    """Add a layer's document, its field and its weights."""
    if layer.input_step is not None:
        _describe_input(network, layer, layer.input_step)
        return
    if layer.pooled is not None:
        network.layers.append({"name": layer.name, "source": layer.pooled, **layer.document})
        return
    if layer.units_from is not None:
        _describe_output(
            network,
            layer,
            {"source": layer.units_from, "activation": layer.activation, "bias": False, "weightless": True},
        )
        network.weights[layer.name] = np.zeros((layer.width or 0, 0), np.float32)
        return
    bias = layer.bias
    common = {"source": list(layer.weights), "activation": layer.activation, "bias": bias is not None}
    if is_output:
        _describe_output(network, layer, common)
        network.weights[layer.name] = np.concatenate(list(layer.weights.values()), axis=1)
    else:
        more = {key: value for key, value in {"dropout": layer.dropout, "skip": layer.skip}.items() if value}
        if layer.state_weight is not None:
            common.pop("activation")
            network.weights[f"{layer.name}/{layer.name}"] = layer.state_weight
        network.layers.append(
            {"name": layer.name, **(layer.document or {"units": layer.width}), **common, **more}
        )
        for source, weight in layer.weights.items():
            network.weights[f"{layer.name}/{source}"] = weight
    if bias is not None:
        network.weights[f"{layer.name} bias"] = bias


def _describe_output(network: Imported, layer: FoldedLayer, more: dict[str, Any]) -> None:
    loss = "cross_entropy" if activation_kind(layer.activation) in ("softmax", "sigmoid") else "l2"
    network.layers.append({"name": layer.name, "kind": "output", "field": layer.name, "loss": loss, **more})
    network.fields[layer.name] = Width(layer.width or 0)


def _describe_input(network: Imported, layer: FoldedLayer, input_step: Input) -> None:
    if layer.shape is None:
        raise DataError("must have a known width", place=f'{network.name}: input "{layer.name}"')
    more: dict[str, Any] = {"dropout": layer.dropout} if layer.dropout else {}
    if prod(layer.shape[1:]) > 1:
        more["shape"] = list(layer.shape)
    if input_step.is_sequence:
        more["last"] = input_step.last or _ALL_POSITIONS
    network.layers.append(
        {"name": layer.name, "kind": "input", "field": layer.name, "scale": input_step.scale, **more}
    )
    network.fields[layer.name] = Width(
        prod(layer.shape),
        "sequence" if input_step.is_sequence else "sparse" if input_step.is_sparse else "dense",
    )
