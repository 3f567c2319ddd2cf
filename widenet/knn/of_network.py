"""The units of a wide layer as vectors: what a trained network holds to be alike."""

from typing import Protocol, runtime_checkable

import torch

from widenet.data.vocabulary import Vocabulary
from widenet.errors import FitError
from widenet.knn.measures import Measure
from widenet.knn.part import Part
from widenet.model.network import Network
from widenet.spec.layers import InputLayer, OutputLayer


class Named(Protocol):
    """A run, which knows the names of its fields' features."""

    def vocabulary(self, field: str) -> Vocabulary:
        """The names of a field's features; raises FitError where it has none."""


@runtime_checkable
class Trained(Protocol):
    """A network and its run, such as `widenet.Model`."""

    @property
    def network(self) -> Network:
        """Whose weights are looked at."""

    @property
    def run(self) -> Named:
        """Where the names are."""


def check_layer(network: Network, layer: str | None) -> str:
    """The layer that is asked for, or the only output; raises FitError where it is neither a sparse input
    nor an output with weights.
    """
    wide = [each.name for each in network.spec.layers if _weights(network, each.name)]
    name = next(iter(network.outputs)) if layer is None and len(network.outputs) == 1 else layer
    if name not in wide:
        got = "has several outputs" if name is None else f'has no sparse input or output called "{name}"'
        got = f'has no vectors at its weightless output "{name}"' if name in network.outputs else got
        remedy = f"Name one of {', '.join(wide)}" if wide else "Ask another one"
        raise FitError(f"The network {got}. {remedy}.")
    return name


def features_of(model: Trained, layer: str) -> Vocabulary:
    """The names of what a layer's units stand for."""
    spec = model.network.spec.layer(layer)
    assert isinstance(spec, InputLayer | OutputLayer), "only these have a field"
    return model.run.vocabulary(spec.field)


def parts_of(network: Network, layer: str, measure: Measure, count: int) -> dict[int, Part]:
    """The weights of a layer's first `count` units, by shard: those of an output, or those from an input to
    all who read it, side by side.

    Biases take no part. Where the weights are one matrix it is the network's own, not a copy.
    """
    weights = _weights(network, layer)
    shards = network.wide[weights[0]].shards

    def part(shard: int) -> tuple[int, Part]:
        rows = max(0, min(shards.stop(shard), count) - shards.start(shard))
        found = [network.wide[name].parts[shard].weight.detach()[:rows] for name in weights]
        return shard, Part.of(
            measure, shards.start(shard), found[0] if len(found) == 1 else torch.cat(found, dim=1)
        )

    return dict(network.exchange.each(part))


def _weights(network: Network, layer: str) -> list[str]:
    """The wide weights whose rows are a layer's units; none of a hidden layer, a dense input or a
    weightless output.
    """
    if layer in network.outputs:
        return [] if network.outputs[layer].spec.weightless else [network.layout.links[layer, ""].weight]
    named = [link.weight for (_, source), link in network.layout.links.items() if source == layer]
    return [name for name in dict.fromkeys(named) if name in network.wide]
