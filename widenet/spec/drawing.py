"""A network as a picture of its layers."""

import json
from collections.abc import Mapping, Sequence

from widenet.pictures.curves import COLOURS
from widenet.pictures.graph import graph
from widenet.pictures.html import Html, brief
from widenet.spec.layers import InputLayer, Layer, OutputLayer
from widenet.spec.rules import feeding, in_order

_SAID = {
    "kind",
    "name",
    "source",
    "skip",
    "field",
    "units",
    "shape",
    "filters",
    "kernel",
    "function",
    "activation",
    "loss",
    "weights",
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
        size = (sizes or {}).get(layer.name) or _size(layer)
        number = (numbers or {}).get(layer.name, 0)
        others = {
            name.replace("_", " "): _words(value)
            for name, value in layer.model_dump(mode="json", exclude_defaults=True).items()
            if name not in _SAID
        }
        lines = [
            f"{layer.kind}{of_field}{', ' if size else ''}{size}",
            _formula(layer),
            *(f"{name} {value}".rstrip() for name, value in others.items()),
            *(f"weights of {share.layer}{', transposed' * share.transposed}" for share in layer.shares),
            f"{number:,} parameters" if number else "",
        ]
        boxes[layer.name] = (COLOURS[_COLOURS.get(layer.kind, 5)], [line for line in lines if line])
    shared = [(share.layer, layer.name) for layer in drawn_layers for share in layer.shares]
    return graph(f"The network {name}".rstrip(), boxes, list(dict.fromkeys(arrows)), shared)


def _size(layer: Layer) -> str:
    units = getattr(layer, "units", None)
    return "" if units is None else "auto units" if units == "auto" else f"{units:,} units"


def _formula(layer: Layer) -> str:
    parts = [getattr(layer, name).kind for name in ("function", "activation", "loss") if hasattr(layer, name)]
    filters = getattr(layer, "filters", None)
    if filters is not None:
        kernel = json.dumps(layer.model_dump(mode="json")["kernel"])
        parts = [f"{filters:,} filters of {kernel}", *parts]
    return ", ".join(part.replace("_", " ") for part in parts)


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
