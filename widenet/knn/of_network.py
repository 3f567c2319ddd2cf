"""Vectors from a trained network: the weights of each unit of a wide layer."""

from typing import Protocol, runtime_checkable

import torch

from widenet.data.vocabulary import Vocabulary
from widenet.errors import FitError
from widenet.knn.measures import Measure
from widenet.knn.part import Part
from widenet.model.network import Network
from widenet.plan.shards import Shards
from widenet.spec.layers import InputLayer, OutputLayer


class Named(Protocol):
    """A run that has the names of its fields' features."""

    def vocabulary(self, field: str) -> Vocabulary:
        """The names of a field's features; raises FitError if it has none."""


@runtime_checkable
class Trained(Protocol):
    """A network and its run, such as `widenet.Model`."""

    @property
    def network(self) -> Network:
        """The network with the weights."""

    @property
    def run(self) -> Named:
        """The run with the names."""


def check_layer(network: Network, layer: str | None) -> str:
    """Return the layer's name, or that of the only output for None.

    Raises:
        FitError: The layer is neither a sparse input nor an output with weights.
    """
    wide = [spec.name for spec in network.spec.layers if _weights(network, spec.name)]
    name = next(iter(network.outputs)) if layer is None and len(network.outputs) == 1 else layer
    if name not in wide:
        problem = "has several outputs" if name is None else f'has no sparse input or output called "{name}"'
        if name in network.outputs:
            problem = f'has no vectors at its weightless output "{name}"'
        remedy = f"Name one of {', '.join(wide)}" if wide else "Use another network"
        raise FitError(f"The network {problem}. {remedy}.")
    return name


def features_of(model: Trained, layer: str) -> Vocabulary:
    """The names of the features that a layer's units stand for."""
    return model.run.vocabulary(field_of(model.network, layer))


def field_of(network: Network, layer: str) -> str:
    """The field whose features a layer's units stand for."""
    spec = network.spec.layer(layer)
    assert isinstance(spec, InputLayer | OutputLayer), "only these have a field"
    return spec.field


def parts_of(network: Network, layer: str, measure: Measure, count: int) -> dict[int, Part]:
    """The weights of a layer's first `count` units, by shard, without biases.

    An input's weights to all its readers stand side by side. A single matrix is the network's own, not a
    copy.
    """
    weights = _weights(network, layer)
    shards = network.wide[weights[0]].shards

    def part(shard: int) -> tuple[int, Part]:
        units = Shards(count, shards.count).units(shard)
        held = [network.wide[name].parts[shard].rows(0, len(units))[0].detach() for name in weights]
        matrices = [matrix.to(network.device) for matrix in held]
        vectors_ND = matrices[0] if len(matrices) == 1 else torch.cat(matrices, dim=1)
        return shard, Part.of(measure, units, vectors_ND)

    return dict(network.exchange.each(part))


def _weights(network: Network, layer: str) -> list[str]:
    """Names of the wide weights whose rows are a layer's units; empty if the layer has none."""
    if layer in network.outputs:
        return [] if network.outputs[layer].spec.weightless else [network.layout.links[layer, ""].weight]
    named = [link.weight for (_, source), link in network.layout.links.items() if source == layer]
    weights = network.layout.weights
    return [name for name in dict.fromkeys(named) if weights[name].wide and not weights[name].split]
