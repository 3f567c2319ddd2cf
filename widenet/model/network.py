"""A network: its weights, shard by shard, and the forward pass."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.devices import sent_together
from widenet.kernels.bags import Touched, split
from widenet.kernels.native import library_runs
from widenet.model import preparation
from widenet.model.convolution import convolution
from widenet.model.description import Description
from widenet.model.flow import Flow
from widenet.model.layers import FORWARD, is_alone
from widenet.model.layers.output import WideOutput
from widenet.model.optimizers import Optimizer
from widenet.model.preparation import Prepared, Values
from widenet.model.product import Blocks, Factor, divided, leaves_of, product
from widenet.model.targets import joined
from widenet.model.weight import WHOLE, TouchedRows, TrunkWeight, WideWeight
from widenet.parallel.exchange import Exchange
from widenet.plan.layout import Key, Layout
from widenet.plan.tiles import PREDICTED_ROWS
from widenet.plan.weights import FOLLOWING, ends_of, weights_by_examples
from widenet.randomness import StepRandom
from widenet.sparse import SparseBatch, stacked
from widenet.spec.layers import Trunk
from widenet.spec.network import NetworkSpec

_BLOCK_NUMBERS = 2**18
"""Numbers of a weight that are gathered together."""


@dataclass
class Activity:
    """The results of a forward pass.

    Attributes:
        prepared: The batch.
        values: Values of the layers, [E, units]; along a sequence [N, units], a vector per position.
        pending: Waits for the sums that are gathered from a sparse input, by layer and source.
        gathered: These sums.
        split: Weights of split layers, by name and shard; the backward pass gives them gradients.
        penalties: Penalties on sparseness.
        statistics: Statistics of the batch, by layer with a batch normalization.
    """

    prepared: Prepared
    values: dict[str, Tensor]
    pending: dict[Key, Callable[[], list[Tensor]]] = field(default_factory=dict)
    gathered: dict[Key, Tensor] = field(default_factory=dict)
    split: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    penalties: list[Tensor] = field(default_factory=list)
    statistics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def predicts(self) -> bool:
        """Whether this is no step of a training, so that no row depends on others."""
        return self.prepared.random is None


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
        damping: Factors of an input's features in the host's memory, by layer.
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

    def prepare(
        self,
        fields: Mapping[str, Values],
        place: tuple[int, int] | None = None,
        weights_E: Tensor | None = None,
    ) -> Prepared:
        """Return a batch's fields as the layers read them; this needs no weights, so it can run ahead.

        The host computes all that it can know of a batch, and sends it to a CUDA device in one copy.

        Args:
            fields: The batch, by field, in the host's memory.
            place: The step's epoch, and its number there, which determine its random numbers; None outside
                training, where outputs have no targets.
            weights_E: See `Prepared`.
        """
        random = None if place is None else StepRandom(self.layout.training.seed, *place)
        prepared = preparation.prepared(
            self.layout,
            self.outputs,
            self.damping,
            fields,
            random,
            PREDICTED_ROWS[self.device.type],
        )
        prepared.weights_E = weights_E
        is_cpu, exchange = self.device.type == "cpu", self.exchange
        needs_rows = random is not None or any(weight.store is not None for weight in self.wide.values())
        if is_cpu and not needs_rows:
            return prepared
        parts = {name: split(own, exchange.num_shards) for name, own in prepared.sparse.items()}
        if not is_cpu:
            for name, own in parts.items():
                shards = self.layout.shards(self.layout.units[name])
                prepared.sparse[name] = joined(own, shards, exchange.shards)
        if needs_rows:
            prepared.touched = self._touched(prepared, parts)
        return prepared if is_cpu else sent_together(prepared, self.device)

    def _touched(self, prepared: Prepared, parts: Mapping[str, Sequence[SparseBatch]]) -> TouchedRows:
        """Return the rows that a batch touches, by weight of sparse inputs and shard of this process.

        On CUDA the shards of most weights are updated together, as `WHOLE`; but outputs, and a limit of the
        gradient's length, take shard by shard. For an output on a sparse input these are columns, the same in
        each shard.
        """
        touched: TouchedRows = {}
        is_apart = self.device.type == "cpu" or self.layout.training.gradient_norm_limit is not None
        of_outputs = {self.layout.links[output, ""].weight for output in self.outputs}
        for weight, keys in self.uses.items():
            if not is_apart and weight not in of_outputs:
                whole, held = [prepared.sparse[source] for _, source in keys], len(self.exchange.shards)
                touched[weight] = {WHOLE: Touched.of_shards(whole, held)}
                continue
            # One shard after the other: threads that make such short calls wait for each other.
            touched[weight] = {
                shard: Touched.of(stacked([parts[source][shard] for _, source in keys]))
                for shard in self.wide[weight].parts
            }
        for name, features in prepared.features.items():
            touched[name] = dict.fromkeys(self.outputs[name].weight.parts, Touched.of(features))
        return touched

    @cached_property
    def filled_rows(self) -> int:
        """To a multiple of which number of examples batches are filled up outside training.

        torch computes functions of single numbers in groups, and rounds the rest of a group in another way.
        Where not all products are the native library's, or along a sequence, blocks are filled up, too.
        """
        rows = PREDICTED_ROWS[self.device.type]
        if not library_runs(self.device) or not all(map(is_alone, self.spec.hidden)):
            return rows
        dense = [layer for layer in self.spec.inputs if self.layout.fields[layer.field].kind == "dense"]
        return rows // gcd(rows, *(self.layout.units[layer.name] for layer in (*dense, *self.spec.hidden)))

    @cached_property
    def uses(self) -> dict[str, list[Key]]:
        """The (layer, source) pairs that read each weight of sparse inputs."""
        uses: dict[str, list[Key]] = {}
        inputs = {layer.name: self.layout.fields[layer.field].kind for layer in self.spec.inputs}
        for key, link in self.layout.links.items():
            if inputs.get(key[1], "dense") != "dense":
                uses.setdefault(link.weight, []).append(key)
        return uses

    def each(self, by_shard: Mapping[int, Any], work: Callable[[int], Any]) -> None:
        """Run work for every shard of this process, or once for `WHOLE` if this is what a mapping holds."""
        if WHOLE in by_shard:
            work(WHOLE)
        else:
            self.exchange.each(work)

    def bring_rows(self, touched: TouchedRows, updates: bool) -> None:
        """Copy the rows that a batch touches from where they lie to the device that computes them.

        Args:
            touched: The rows.
            updates: Whether a step updates them.
        """
        for name, shards in touched.items():
            weight = self.wide[name]
            for shard, rows in shards.items():
                weight.part(shard).bring(rows.features_U, updates and weight.by_rows)

    def forward(self, prepared: Prepared) -> Activity:
        """Compute the hidden layers; differentiable by the gathered sums and the trunk's weights."""
        activity, touched = Activity(prepared, dict(prepared.dense)), prepared.touched
        if activity.predicts:
            self.bring_rows(touched, updates=False)
        for name, keys in self.uses.items():
            for key in keys:
                terms = self.wide[name].gathered(prepared.sparse[key[1]], self.exchange)
                activity.pending[key] = self.exchange.start_sum(terms, where=f'layer "{key[0]}"')
        for name in touched:
            if activity.predicts or not self.wide[name].by_rows:
                self.wide[name].give_back()
        divided = () if activity.predicts else self.layout.by_examples
        if divided:
            self._compute_divided([layer for layer in self._hidden if layer.name in divided], activity)
        self._compute([layer for layer in self._hidden if layer.name not in divided], activity)
        return activity

    @cached_property
    def _hidden(self) -> tuple[Trunk, ...]:
        """The layers between inputs and outputs, each after those that feed it."""
        return self.spec.hidden

    @cached_property
    def _sources(self) -> dict[str, tuple[str, ...]]:
        """The names of the layers that each layer takes."""
        return {layer.name: self.spec.sources(layer) for layer in self.spec.layers}

    def share_of_gradient(self, weight: str) -> float:
        """Factor on the gradients of a weight's users: 1, or 1 / their number for their mean."""
        is_sum = self.spec.shared_gradient == "sum"
        return 1.0 if is_sum else 1 / max(self.layout.users(weight), 1)

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
        prepared, name = activity.prepared, output.spec.name
        if name in prepared.features:
            return torch.zeros(prepared.features[name].num_examples, 0, device=self.device)
        sources = [activity.values[source] for source in self._sources[name]]
        hidden_EH = sources[0] if len(sources) == 1 else torch.cat(sources, dim=1)
        if (taken := prepared.taken.get(name)) is not None:
            hidden_EH = torch.cat([hidden_EH, hidden_EH.new_zeros(1, hidden_EH.shape[1])])[taken]
        return output.direct(hidden_EH, activity.predicts)

    def output_for(self, name: str, activity: Activity) -> WideOutput:
        """Return an output for a batch: with the batch's features if it reads a sparse input."""
        prepared, output = activity.prepared, self.outputs[name]
        features = prepared.features.get(name)
        if features is None:
            return output
        touched = None if activity.predicts else prepared.touched[name]
        return replace(output, features=features, touched=touched)

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
        most = max(1, _BLOCK_NUMBERS // max(num_columns * shards.count, 1))

        memory = torch.empty(min(most * shards.count, shards.width), num_columns, device=self.device)

        def own(start: int, shard: int) -> Tensor:
            num = min(start + most, shards.size(shard)) - start
            rows_RH = weight.parts[shard].rows(start, start + num).weight
            rows_RH = (rows_RH[:, None] if weight.is_bias else rows_RH)[:, columns].to(self.device)
            missing = min(most, shards.size(0) - start) - num
            return pad(rows_RH, (0, 0, 0, missing)) if missing else rows_RH

        for start in range(0, shards.size(0), most):
            block = memory[: shards.width - start * shards.count]
            found = self.exchange.gather([own(start, shard) for shard in self.exchange.shards], where)
            for shard, rows_RH in enumerate(found):
                into = block[shard :: shards.count]
                into.copy_(rows_RH[: len(into)])
            yield start * shards.count, block

    def _compute(self, layers: Sequence[Trunk], activity: Activity) -> None:
        """Compute some hidden layers, each after those that feed it."""
        for layer in layers:
            activity.values[layer.name] = FORWARD[layer.kind](layer, self._flow(layer, activity))

    def _compute_divided(self, layers: Sequence[Trunk], activity: Activity) -> None:
        """Compute the layers whose examples are divided among shards, and keep what others read of them."""
        prepared, alone = activity.prepared, replace(self, exchange=Exchange(1))

        def compute(part: slice, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
            own = Activity(prepared, {name: values[part] for name, values in prepared.dense.items()})
            trunk = self.trunk | {name: TrunkWeight(weight) for name, weight in weights.items()}
            replace(alone, trunk=trunk)._compute(layers, own)
            return own.values

        num_examples = len(next(iter(prepared.dense.values())))
        weights = {name: self.trunk[name].tensor for name in weights_by_examples(self.layout)}
        activity.values |= divided(self.exchange, compute, ends_of(self.layout), num_examples, weights)

    def _flow(self, layer: Trunk, activity: Activity) -> Flow:
        """Return everything that a layer reads in a step."""
        prepared, sources, own = activity.prepared, self._sources[layer.name], (layer.name, layer.name)
        keys = [(layer.name, name) for name in sources if (layer.name, name) in self.layout.links]
        return Flow(
            layout=self.layout,
            trunk=self.trunk,
            sources=[activity.values[name] for name in sources if name in activity.values],
            sums=[self._product(key, activity) for key in keys],
            skips=[activity.values[name] for name in layer.skip or ()],
            random=prepared.random,
            positions=prepared.positions.get(self.layout.along.get(layer.name, "")),
            state=self._factor(own, activity) if own in self.layout.links else None,
            blocks=self._blocks(layer.name, activity),
            penalties=activity.penalties,
            statistics=activity.statistics,
        )

    def _product(self, key: Key, activity: Activity) -> Tensor:
        if key in activity.pending:
            (activity.gathered[key],) = activity.pending[key]()
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
