"""The documents, fields and weights of folded layers."""

from math import prod
from typing import Any

import numpy as np

from widenet.errors import DataError
from widenet.frameworks.folded_layer import FoldedLayer
from widenet.frameworks.operations import Input
from widenet.interop.imported import Imported
from widenet.plan.layout import Width

_ALL_POSITIONS = 2**31 - 1
"""Value of `last` for sequences of any length: the largest number that a document may have."""


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
        raise DataError(
            f'{network.name}: the width of the input "{layer.name}" must be known; the file does not have it.'
        )
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
