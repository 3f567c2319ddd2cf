"""A network as a picture of its layers."""

import json
from collections.abc import Mapping, Sequence

from widenet.pictures.curves import COLOURS
from widenet.pictures.graph import graph
from widenet.pictures.html import Html, brief
from widenet.spec.layers import InputLayer, Layer, OutputLayer
from widenet.spec.rules import feeding, in_order

_KINDS = ("function", "activation", "loss")
"""Fields whose kinds are one line of a box."""
_SAID = {
    "kind",
    "name",
    "source",
    "skip",
    "field",
    "units",
    "shape",
    "weights",
    *_KINDS,
}
"""Fields that the lines of a box or its arrows show already."""

_COLOURS = {
    "hidden": 0,
    "output": 1,
    "input": 2,
    "recurrent": 3,
    "convolution": 4,
    "pooling": 6,
    "attention": 7,
}
"""The place of each kind's colour in `COLOURS`; all others have the one that is left."""


def drawn(
    name: str,
    layers: Sequence[Layer],
    sizes: Mapping[str, str] | None = None,
    numbers: Mapping[str, int] | None = None,
) -> Html:
    """A network's layers as boxes, from inputs down to outputs.

    sizes: how many units each layer has, in words, by name; None: as the document says. numbers: parameters
    that a layer owns, by name.
    """
    inputs = [layer for layer in layers if isinstance(layer, InputLayer)]
    outputs = [layer for layer in layers if isinstance(layer, OutputLayer)]
    hidden = [layer for layer in in_order(layers) if not isinstance(layer, InputLayer | OutputLayer)]
    drawn_layers = [*inputs, *hidden, *outputs]
    arrows = [(start, layer.name) for layer in drawn_layers for start in feeding(layers, layer)]
    boxes = {}
    for layer in drawn_layers:
        of_field = f' of "{layer.field}"' if isinstance(layer, InputLayer | OutputLayer) else ""
        units = getattr(layer, "units", None)
        size = f", {brief(units)} units" if units is not None else ""
        size = f", {sizes[layer.name]}" if sizes and layer.name in sizes else size
        number = (numbers or {}).get(layer.name, 0)
        others = {
            name.replace("_", " "): _words(value)
            for name, value in layer.model_dump(mode="json", exclude_defaults=True).items()
            if name not in _SAID
        }
        lines = [
            f"{layer.kind}{of_field}{size}",
            ", ".join(getattr(layer, name).kind.replace("_", " ") for name in _KINDS if hasattr(layer, name)),
            *(f"{name} {value}".rstrip() for name, value in others.items()),
            *(f"weights of {share.layer}{', transposed' * share.transposed}" for share in layer.shares),
            f"{number:,} parameters" if number else "",
        ]
        boxes[layer.name] = (COLOURS[_COLOURS.get(layer.kind, 5)], [line for line in lines if line])
    shared = [(share.layer, layer.name) for layer in drawn_layers for share in layer.shares]
    return graph(f"The network {name}".rstrip(), boxes, list(dict.fromkeys(arrows)), shared)


def _words(value: object) -> str:
    """Return a setting in words: "gaussian, deviation 0.04" for {"kind": "gaussian", "deviation": 0.04}."""
    if isinstance(value, dict):
        return ", ".join(
            _words(inner) if name == "kind" else f"{name.replace('_', ' ')} {_words(inner)}"
            for name, inner in value.items()
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return json.dumps(value) if isinstance(value, bool | None) else brief(value)
