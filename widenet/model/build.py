"""From documents and widths to a network with its first weights."""

from collections.abc import Mapping

import numpy as np
import torch

from widenet.model.binding import FieldFacts, bind, is_sparse_input
from widenet.model.exchange import Exchange
from widenet.model.initializers import initial
from widenet.model.layers.input import damping
from widenet.model.layers.output import WideOutput
from widenet.model.network import Link, Network, TrunkWeight
from widenet.model.sharding import Shards
from widenet.model.wide_weight import Part, WideWeight
from widenet.spec.layers import HiddenLayer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def build(
    spec: NetworkSpec,
    training: TrainingSpec,
    fields: Mapping[str, FieldFacts],
    exchange: Exchange,
    device: torch.device | str = "cpu",
    counts: Mapping[str, np.ndarray] | None = None,
) -> Network:
    """A network with the weights that (seed, layer, shard) determine, holding the shards that the exchange has at hand.

    fields: facts of the dataset's fields. counts: training interactions int64 [width] of the fields that
    "popularity_damping" needs; None: leave every weight undefined, for a checkpoint to fill. Raises FitError.
    """
    builder = _Builder(spec, training, fields, exchange, torch.device(device), blank=counts is None)
    for hidden in spec.hidden:
        builder.add_hidden(hidden)
    for output in spec.outputs:
        builder.add_output(output)
    return builder.network(counts)


class _Builder:
    def __init__(
        self,
        spec: NetworkSpec,
        training: TrainingSpec,
        fields: Mapping[str, FieldFacts],
        exchange: Exchange,
        device: torch.device,
        blank: bool,
    ) -> None:
        self.spec, self.training, self.fields, self.exchange, self.device, self.blank = spec, training, fields, exchange, device, blank
        self.units = bind(spec, fields)
        self.links: dict[tuple[str, str], Link] = {}
        self.wide: dict[str, WideWeight] = {}
        self.trunk: dict[str, TrunkWeight] = {}

    def add_hidden(self, layer: HiddenLayer) -> None:
        for source in self.spec.sources(layer):
            self.links[layer.name, source] = link = self._link(layer, source)
            if link.weight != f"{layer.name}/{source}":
                continue
            fan_in, fan_out = self.units[source], self.units[layer.name]
            if is_sparse_input(self.spec, source, self.fields):
                shards = Shards(fan_in, self.training.shards)
                self.wide[link.weight] = self._wide(layer, link.weight, shards, fan_out, fan_in, fan_out)
            else:
                weight = self._initial(layer, (fan_out, fan_in), fan_in, fan_out, link.weight)
                self.trunk[link.weight] = TrunkWeight(weight, norm_limit=layer.weight_norm)
        if layer.bias:
            start = torch.full((self.units[layer.name],), layer.bias_start, device=self.device)
            self.trunk[f"{layer.name} bias"] = TrunkWeight(start)

    def add_output(self, layer: OutputLayer) -> None:
        link = self._link(layer, self.spec.sources(layer)[0]) if layer.weights else Link(layer.name)
        self.links[layer.name, ""] = link
        shards = Shards(self.units[layer.name], self.training.shards)
        if link.weight == layer.name:
            fan_in, fan_out = sum(self.units[source] for source in self.spec.sources(layer)), self.units[layer.name]
            self.wide[layer.name] = self._wide(layer, layer.name, shards, fan_in, fan_in, fan_out)
        if layer.bias:
            parts = self.exchange.each(lambda shard: (shard, torch.full((shards.size(shard),), layer.bias_start, device=self.device)))
            self.wide[f"{layer.name} bias"] = WideWeight(shards, {shard: Part(bias) for shard, bias in parts}, l2=layer.bias_l2)

    def network(self, counts: Mapping[str, np.ndarray] | None) -> Network:
        outputs = {}
        for layer in self.spec.outputs:
            name = self.links[layer.name, ""].weight
            users = [link.weight for link in self.links.values()].count(name)
            bias = self.wide.get(f"{layer.name} bias")
            half = self.training.precision == "bfloat16"
            outputs[layer.name] = WideOutput(layer, self.wide[name], bias, self.exchange, owns_weight=users == 1, half=half)
        factors = {}
        for entry in self.spec.inputs:
            if entry.popularity_damping:
                units = self.units[entry.name]
                factors[entry.name] = (torch.empty(units) if counts is None else damping(entry, counts[entry.field], units)).to(self.device)
        return Network(
            spec=self.spec,
            units=self.units,
            exchange=self.exchange,
            num_shards=self.training.shards,
            device=self.device,
            links=self.links,
            wide=self.wide,
            trunk=self.trunk,
            outputs=outputs,
            damping=factors,
        )

    def _initial(
        self, layer: HiddenLayer | OutputLayer, shape: tuple[int, int], fan_in: int, fan_out: int, name: str, shard: int = 0
    ) -> torch.Tensor:
        if self.blank:
            return torch.empty(shape, device=self.device)
        return initial(layer.initializer, shape, fan_in, fan_out, self.training.seed, name, shard).to(self.device)

    def _link(self, layer: HiddenLayer | OutputLayer, source: str) -> Link:
        """The weight that a layer uses for a source: its own, or the one it shares."""
        own = layer.name if isinstance(layer, OutputLayer) else f"{layer.name}/{source}"
        share = layer.weights
        if share is None or (share.source or self.spec.sources(layer)[0]) != source:
            return Link(own)
        owner = self.spec.layer(share.layer)
        if isinstance(owner, OutputLayer):
            return Link(owner.name, share.transposed)
        return Link(f"{owner.name}/{share.layer_source or self.spec.sources(owner)[0]}", share.transposed)

    def _wide(self, layer: HiddenLayer | OutputLayer, name: str, shards: Shards, columns: int, fan_in: int, fan_out: int) -> WideWeight:
        def part(shard: int) -> tuple[int, Part]:
            shape = (shards.size(shard), columns)
            return shard, Part(self._initial(layer, shape, fan_in, fan_out, name, shard))

        limit = layer.weight_norm if isinstance(layer, OutputLayer) else None
        return WideWeight(shards, dict(self.exchange.each(part)), norm_limit=limit)
