"""A network: its weights, shard by shard, and the forward pass."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import Any

import torch
from torch import Tensor

from widenet.devices import sent_together
from widenet.kernels.bags import Touched, gather_sums, split
from widenet.kernels.native import runner
from widenet.model import preparation
from widenet.model.by_examples import divided
from widenet.model.convolution import convolution
from widenet.model.description import Description
from widenet.model.flow import Flow
from widenet.model.layers import ALONE, FORWARD
from widenet.model.layers.output import WideOutput
from widenet.model.optimizers import Optimizer
from widenet.model.preparation import Ends, Prepared, Values
from widenet.model.product import Blocks, Factor, leaves_of, product
from widenet.model.targets import joined
from widenet.model.weight import WHOLE, TouchedRows, TrunkWeight, WideWeight, touched_together
from widenet.parallel.exchange import Exchange
from widenet.parallel.line import Pending
from widenet.plan.layout import Key, Layout
from widenet.plan.picture_layers import ends_of, weights_by_examples
from widenet.plan.tiles import PREDICTED_ROWS, Shards
from widenet.plan.weights import FOLLOWING
from widenet.randomness import StepRandom
from widenet.sparse import SparseBatch, stacked
from widenet.spec.layers import Trunk
from widenet.spec.network import NetworkSpec

_BLOCK_NUMBERS = 2**22
"""Numbers of a weight that are gathered together."""


@dataclass
class Activity:
    """The results of a forward pass.

    Attributes:
        values: Values of the layers, [E, units]; along a sequence [N, units], a vector per position.
        gathered: Sums gathered from sparse inputs, by layer and source.
        split: Weights of split layers, by name and shard; the backward pass gives them gradients.
        penalties: Penalties on sparseness.
        statistics: Statistics of the batch, by layer with a batch normalization.
        taken, features: See `Prepared`.
        predicts: Whether this is no step of a training, so that no row depends on others.
    """

    values: dict[str, Tensor]
    gathered: dict[Key, Tensor] = field(default_factory=dict)
    split: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    penalties: list[Tensor] = field(default_factory=list)
    statistics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    taken: dict[str, Tensor] = field(default_factory=dict)
    features: dict[str, SparseBatch] = field(default_factory=dict)
    predicts: bool = False


@dataclass
class Network:
    """A network: a layout, and tensors that hold its weights.

    It knows no rank: what crosses shards goes through the exchange.

    Attributes:
        layout: Its layers, with shapes and weights.
        exchange: Adds and compares across shards.
        device: Where its tensors are.
        wide: Sharded weights of sparse inputs, outputs and split layers; biases of outputs as "LAYER bias".
        trunk: All other weights.
        outputs: Its outputs, by name.
        descriptions: In training, the descriptions of weights, by name.
        damping: Factors of an input's features, by layer.
    """

    layout: Layout
    exchange: Exchange
    device: torch.device
    wide: dict[str, WideWeight]
    trunk: dict[str, TrunkWeight]
    outputs: dict[str, WideOutput]
    damping: dict[str, Tensor]
    descriptions: dict[str, Description] = field(default_factory=dict)

    @property
    def spec(self) -> NetworkSpec:
        """The network document."""
        return self.layout.network

    def shards(self, layer: str) -> Shards:
        """Return the shards of a wide layer's units."""
        return self.layout.shards(self.layout.units[layer])

    def prepare(
        self, fields: Mapping[str, Values], random: StepRandom | None, weights_E: Tensor | None = None
    ) -> Prepared:
        """Return a batch's fields as the layers read them; this needs no weights, so it can run ahead.

        The host computes all that it can know of a batch, and sends it to a CUDA device in one copy.

        Args:
            fields: The batch, by field, in the host's memory.
            random: The step's random numbers; None outside training, where outputs have no targets.
            weights_E: See `Prepared`.
        """
        prepared = preparation.prepared(self._ends, fields, random, PREDICTED_ROWS[self.device.type])
        prepared.weights_E = weights_E
        needs_rows = random is not None or any(weight.store is not None for weight in self.wide.values())
        if self.device.type == "cpu" and not needs_rows:
            return prepared
        shards = {name: self.shards(name) for name in prepared.sparse}
        parts = {name: split(own, shards[name].count) for name, own in prepared.sparse.items()}
        if self.device.type == "cpu":
            prepared.touched = self._touched(prepared, parts, {})
            return prepared
        held = self.exchange.shards
        whole = {name: joined(own, shards[name], held) for name, own in parts.items()}
        if needs_rows:
            together = touched_together(self.uses(prepared), whole, self.layout, len(held))
            prepared.touched = self._touched(prepared, parts, together)
        prepared.sparse = whole
        return sent_together(prepared, self.device)

    @cached_property
    def _ends(self) -> Ends:
        inputs = {layer.name for layer in self.spec.inputs}
        standing: dict[str, list[str]] = {}
        for name, output in self.outputs.items():
            sources = self.spec.sources(output.spec)
            if len(sources) == 1 and sources[0] in inputs:
                standing.setdefault(sources[0], []).append(name)
        gathered = {source for _, source in self.layout.links if source in inputs}
        damping = {name: factors.cpu() for name, factors in self.damping.items()}
        return Ends(self.spec.inputs, self.outputs, gathered, standing, self.layout.along, damping)

    @cached_property
    def filled_rows(self) -> int:
        """To a multiple of which number of examples batches are filled up outside training.

        torch computes functions of single numbers in groups, and rounds the rest of a group in another way.
        Where not all products are the native library's, or along a sequence, blocks are filled up, too.
        """
        rows = PREDICTED_ROWS[self.device.type]
        is_native = runner("ranking", self.device) == "native"
        if not is_native or any(layer.kind not in ALONE for layer in self.spec.hidden):
            return rows
        dense = [layer for layer in self.spec.inputs if self.layout.fields[layer.field].kind == "dense"]
        return rows // gcd(rows, *(self.layout.units[layer.name] for layer in (*dense, *self.spec.hidden)))

    def uses(self, prepared: Prepared) -> dict[str, list[Key]]:
        """Return the (layer, source) pairs that read each weight of sparse inputs."""
        uses: dict[str, list[Key]] = {}
        for key, link in self.layout.links.items():
            if key[1] in prepared.sparse:
                uses.setdefault(link.weight, []).append(key)
        return uses

    def _touched(
        self, prepared: Prepared, parts: Mapping[str, Sequence[SparseBatch]], together: TouchedRows
    ) -> TouchedRows:
        """Return the rows that a batch touches, by weight of sparse inputs and shard of this process.

        For an output on a sparse input these are columns, the same in each shard. `together`: some of them.
        """
        touched = dict(together)
        for weight, keys in self.uses(prepared).items():
            if weight not in touched:
                # One shard after the other: threads that make such short calls wait for each other.
                touched[weight] = {
                    shard: Touched.of(stacked([parts[source][shard] for _, source in keys]))
                    for shard in self.wide[weight].parts
                }
        for name, features in prepared.features.items():
            touched[name] = dict.fromkeys(self.outputs[name].weight.parts, Touched.of(features))
        return touched

    def each(self, by_shard: Mapping[int, Any], work: Callable[[int], Any]) -> None:
        """Run work for every shard of this process, or once for `WHOLE` if this is what a mapping holds."""
        if WHOLE in by_shard:
            work(WHOLE)
        else:
            self.exchange.each(work)

    def bring_rows(self, touched: TouchedRows, updates: bool) -> None:
        """Bring the rows that a batch touches from where they lie; see `WideWeight.bring`."""
        for name, rows in touched.items():
            self.wide[name].bring(rows, updates)

    def example_weights(self, output: WideOutput, prepared: Prepared) -> Tensor | None:
        """Return loss weights of an output's vectors from those of the examples: [E], or [M] with "next"."""
        if (weights_E := prepared.weights_E) is None or output.spec.predict != "next":
            return weights_E
        positions = prepared.positions[self.layout.along[output.spec.name]]
        return weights_E[positions.examples_N[positions.asking_M]]

    def forward(self, prepared: Prepared, random: StepRandom | None) -> Activity:
        """Compute the hidden layers; differentiable by the gathered sums and the trunk's weights."""
        activity = Activity(dict(prepared.dense), predicts=random is None)
        activity.taken, activity.features = prepared.taken, prepared.features
        if random is None:
            self.bring_rows(prepared.touched or {}, updates=False)
        pending = {
            key: self._start_gather(key, prepared) for key in self.layout.links if key[1] in prepared.sparse
        }
        for name in prepared.touched or {}:
            if random is None or not self.wide[name].moves_by_rows:
                self.wide[name].give_back()
        divided = set() if random is None else {*self.layout.by_examples}
        if divided:
            self._compute_divided(prepared, activity, random)
        self._compute(
            [layer for layer in self._hidden if layer.name not in divided],
            prepared,
            pending,
            activity,
            random,
        )
        return activity

    @cached_property
    def _hidden(self) -> tuple[Trunk, ...]:
        return self.spec.hidden

    def share_of_gradient(self, weight: str) -> float:
        """Factor on the gradients of a weight's users: 1, or 1 / their number for their mean."""
        users = sum(link.weight == weight for link in self.layout.links.values())
        return 1 / users if users and self.spec.shared_gradient == "mean" else 1.0

    def follow(self, activity: Activity) -> None:
        """Update the running statistics of batch normalizations with those of a batch."""
        for name, statistics in activity.statistics.items():
            layer: Any = self.spec.layer(name)
            momentum = layer.batch_normalization.momentum
            for part, batch_C in zip(FOLLOWING, statistics, strict=True):
                running_C = self.trunk[f"{name} normalization {part}"].tensor
                running_C.mul_(1 - momentum).add_(batch_C, alpha=momentum)

    def direct(self, output: WideOutput, activity: Activity) -> Tensor:
        """Return the vectors [E, H] that enter an output: the sources side by side.

        Along a sequence these are the vectors of the positions that the output takes. For an output on a
        sparse input they are [E, 0].
        """
        if output.spec.name in activity.features:
            return torch.zeros(activity.features[output.spec.name].num_examples, 0, device=self.device)
        sources = [activity.values[source] for source in self.spec.sources(output.spec)]
        hidden_EH = sources[0] if len(sources) == 1 else torch.cat(sources, dim=1)
        if (taken := activity.taken.get(output.spec.name)) is not None:
            hidden_EH = torch.cat([hidden_EH, hidden_EH.new_zeros(1, hidden_EH.shape[1])])[taken]
        return output.direct(hidden_EH, activity.predicts)

    def output_for(
        self, name: str, activity: Activity, touched: Mapping[str, Mapping[int, Touched]] | None = None
    ) -> WideOutput:
        """Return an output for a batch: with the batch's features if it reads a sparse input.

        Args:
            name: Name of the output.
            activity: The forward pass.
            touched: In training, the rows that the batch touches.
        """
        features = activity.features.get(name)
        if features is None:
            return self.outputs[name]
        return replace(
            self.outputs[name], features=features, touched=None if touched is None else touched[name]
        )

    def prepare_training(self, rule: Optimizer) -> None:
        """Allocate the optimizer's state."""
        for weight in self.wide.values():
            weight.prepare(rule)
        for trunk in self.trunk.values():
            trunk.prepare(rule)

    def rows(self, name: str, columns: slice = slice(None)) -> Iterator[tuple[int, Tensor]]:
        """Yield all rows of a wide weight in order of units, a block at a time.

        Every process must take all blocks.

        Args:
            name: Name of the weight.
            columns: Columns to take; a bias has one.

        Yields:
            The unit of the block's first row, and the rows, float32 [rows, columns], until the next block.
        """
        weight, where = self.wide[name], f'weight "{name}"'
        shards, num_columns = weight.shards, len(range(self.layout.weights[name].row_length)[columns])
        rows = max(1, _BLOCK_NUMBERS // max(num_columns * shards.count, 1))
        memory = torch.empty(min(rows * shards.count, shards.width), num_columns, device=self.device)
        for start in range(0, shards.size(0), rows):
            first, last = start * shards.count, min((start + rows) * shards.count, shards.width)
            block = memory[: last - first]
            for shard in range(shards.count):
                into, part = block[shard :: shards.count], weight.parts.get(shard)
                own = None
                if part is not None:
                    rows_RH, _ = part.rows(start, start + len(into))
                    own = (rows_RH[:, None] if weight.is_bias else rows_RH)[:, columns].to(self.device)
                into.copy_(self.exchange.fetch(shard, own, tuple(into.shape), self.device, where))
            yield first, block

    def first_non_finite(self) -> str | None:
        """Return the first weight with an infinity or NaN in any process; None if all are finite."""
        broken = self.exchange.collect(self._first_non_finite_here(), "weights")
        return next((name for name in (*self.trunk, *self.wide) if name in broken), None)

    def _first_non_finite_here(self) -> str | None:
        for name, trunk in self.trunk.items():
            if not bool(torch.isfinite(trunk.tensor).all()):
                return name
        for name, weight in self.wide.items():
            if not all(
                bool(torch.isfinite(block).all()) for part in weight.parts.values() for block in part.blocks()
            ):
                return name
        return None

    def _start_gather(self, key: Key, prepared: Prepared) -> Pending[list[Tensor]]:
        batch, weight = prepared.sparse[key[1]], self.wide[self.layout.links[key].weight]
        where, count = f'layer "{key[0]}"', weight.shards.count
        if weight.whole is not None:
            sums = weight.gathered(batch)
            return self.exchange.start_sum(sums.view(len(weight.parts), -1, sums.shape[1]), where=where)
        if weight.in_8_bits:
            parts = split(batch, count)
            terms = self.exchange.each(lambda shard: weight.parts[shard].gathered(parts[shard]))
            return self.exchange.start_sum(terms, where=where)
        rows = [weight.parts[n].weight if n in weight.parts else None for n in range(count)]
        sums = gather_sums(batch, rows, weight.columns, self.exchange.num_threads)
        return self.exchange.start_sum(
            sums if len(weight.parts) == count else [sums[n] for n in weight.parts], where=where
        )

    def _compute(
        self,
        layers: Sequence[Trunk],
        prepared: Prepared,
        pending: Mapping[Key, Pending[list[Tensor]]],
        activity: Activity,
        random: StepRandom | None,
    ) -> None:
        """Compute some hidden layers, each after those that feed it."""
        for layer in layers:
            flow = self._flow(layer, prepared, pending, activity, random)
            activity.values[layer.name] = FORWARD[layer.kind](layer, flow)

    def _compute_divided(self, prepared: Prepared, activity: Activity, random: StepRandom | None) -> None:
        """Compute the layers whose examples are divided among shards, and keep what others read of them."""
        names, layout = {*self.layout.by_examples}, self.layout
        layers = [layer for layer in self._hidden if layer.name in names]
        alone = replace(self, exchange=Exchange(1))

        def compute(part: slice, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
            own = Activity({name: values[part] for name, values in prepared.dense.items()})
            trunk = self.trunk | {name: TrunkWeight(weight) for name, weight in weights.items()}
            replace(alone, trunk=trunk)._compute(layers, prepared, {}, own, random)
            return own.values

        num_examples = len(next(iter(prepared.dense.values())))
        weights = {name: self.trunk[name].tensor for name in weights_by_examples(layout)}
        activity.values |= divided(self.exchange, compute, ends_of(layout), num_examples, weights)

    def _flow(
        self,
        layer: Trunk,
        prepared: Prepared,
        pending: Mapping[Key, Pending[list[Tensor]]],
        activity: Activity,
        random: StepRandom | None,
    ) -> Flow:
        """Return everything that a layer reads in a step."""
        sources = self.spec.sources(layer)
        keys = [(layer.name, source) for source in sources if (layer.name, source) in self.layout.links]
        own = layer.name, layer.name
        return Flow(
            layout=self.layout,
            trunk=self.trunk,
            sources=[activity.values[name] for name in sources if name in activity.values],
            sums=[self._product(key, pending, activity) for key in keys],
            skips=[activity.values[name] for name in layer.skip or ()],
            random=random,
            positions=prepared.positions.get(self.layout.along.get(layer.name, "")),
            state=self._factor(own, activity) if own in self.layout.links else None,
            blocks=self._blocks(layer.name, activity),
            penalties=activity.penalties,
            statistics=activity.statistics,
        )

    def _product(self, key: Key, pending: Mapping[Key, Pending[list[Tensor]]], activity: Activity) -> Tensor:
        if key in pending:
            (activity.gathered[key],) = pending[key].result()
            trained = self.wide[self.layout.links[key].weight].trained
            return activity.gathered[key].requires_grad_(trained and torch.is_grad_enabled())
        values_EN, blocks = activity.values[key[1]], self._blocks(key[0], activity)
        if key in self.layout.windows:
            weight_FK = self.trunk[self.layout.links[key].weight].tensor
            return convolution(values_EN, weight_FK, self.layout.windows[key], blocks)
        return product(values_EN, self._factor(key, activity))

    def _factor(self, key: Key, activity: Activity) -> Factor:
        """Return the weight of a layer and one of its sources of numbers."""
        link, blocks = self.layout.links[key], self._blocks(key[0], activity)
        if link.weight in self.wide:
            wide = self.wide[link.weight]
            leaves = activity.split[link.weight] = leaves_of(wide)
            return Factor([*leaves.values()], blocks, wide.shards)
        weight_HN = self.trunk[link.weight].tensor
        return Factor([weight_HN.T if link.transposed else weight_HN], blocks)

    def _blocks(self, layer: str, activity: Activity) -> Blocks:
        half = self.layout.training.precision == "bfloat16" and torch.is_grad_enabled()
        return Blocks(self.exchange, f'layer "{layer}"', half, activity.predicts)
