"""Terms of a ranking, each of which changes some scores, and what each feature adds to a logit."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.data.dataset import Dataset
from widenet.data.together import Neighbours, neighbours
from widenet.devices import sent_together
from widenet.errors import FitError
from widenet.kernels.bags import split
from widenet.kernels.fixed_point import power
from widenet.kernels.neighbour_means import FRACTION_BITS, NeighbourLists
from widenet.model.layers.output import WideOutput
from widenet.model.network import Network
from widenet.model.operands import SHORTEST
from widenet.model.preparation import scaled
from widenet.model.targets import ByUnit
from widenet.plan.tiles import as_slice
from widenet.sparse import SparseBatch, from_rows, stacked
from widenet.spec.layers import Neighbourhood
from widenet.spec.network import NetworkSpec

Term: TypeAlias = Callable[[Tensor, int, int], None]
"""Changes the scores [E, T] of the units from a row of a shard, float32, in place: (scores, shard, row).

An example's numbers have the same bits in every batch.
"""
_COLUMNS = 64
"""Means are filled up to multiples of this: vector instructions round the rest in another way."""


def of_entries(
    output: WideOutput,
    batch: SparseBatch,
    change: Callable[[Tensor, Tensor], Tensor],
    listed_E: Tensor | None = None,
) -> Term:
    """Return a term that changes the scores of some units, example by example.

    Args:
        output: The output.
        batch: The units of E examples, with numbers as values.
        change: Returns new scores, from scores and numbers.
        listed_E: Which examples may have no other units, bool.
    """
    by_unit = [ByUnit.of(part) for part in split(batch.to("cpu"), output.weight.shards.count)]
    parts = sent_together(by_unit, output.weight.device)
    listed_E = None if listed_E is None else listed_E.to(output.weight.device)

    def term(scores_ET: Tensor, shard: int, start: int) -> None:
        own = parts[shard]
        span = slice(*own.edges([start, start + scores_ET.shape[1]]))
        cells = own.examples_Z[span], own.units_Z[span] - start
        changed_Z = change(scores_ET[cells], own.values_or_ones(span))
        if listed_E is not None:
            scores_ET[listed_E] = -torch.inf
        scores_ET[cells] = changed_Z

    return term


def of_units(output: WideOutput, numbers_L: Tensor, change: Callable[[Tensor, Tensor], Tensor]) -> Term:
    """Return a term that changes the scores of all examples by numbers [L] or [L, M]."""

    def term(scores_ET: Tensor, shard: int, start: int) -> None:
        units = output.weight.shards.units(shard)[start : start + scores_ET.shape[1]]
        scores_ET.copy_(change(scores_ET, numbers_L[as_slice(units)]))

    return term


def terms_of(output: WideOutput, history: SparseBatch | None) -> list[Term]:
    """Return the terms of an output's logits.

    Args:
        output: The output.
        history: E examples of its field, in the host's memory; None: an output without terms.
    """
    terms: list[Term] = []
    if history is not None and output.spec.neighbourhood is not None:
        terms.append(
            NearFeatures(output.spec.neighbourhood, output.lists, history.to(output.weight.device)).add
        )
    if history is not None and output.spec.repeats is not None:
        terms.append(of_entries(output, repeated(history, output.spec.repeats), torch.add))
    return terms


def repeated(history: SparseBatch, numbers: Sequence[float]) -> SparseBatch:
    """Return each feature of a sequence once, with its number in `OutputLayer.repeats`."""
    back_Z = history.indptr[1:][history.example_of_entry()] - 1 - torch.arange(history.num_entries)
    values_Z = torch.tensor(numbers)[back_Z.clamp_max(len(numbers) - 1)]
    return history.with_values(values_Z).distinct_in_order()


class NearFeatures:
    """The neighbourhood term; `spec.layers.Neighbourhood` has its formula.

    Attributes:
        features: E examples, each feature once, with its weight in the mean as value.
        weight_E: Sum of the weights of each example, float64; 1 for one without features.
    """

    def __init__(
        self, spec: Neighbourhood, lists: Mapping[int, NeighbourLists], history: SparseBatch
    ) -> None:
        self.spec, self.lists = spec, lists
        if not self.spec.in_order:
            self.features = history.distinct()
            self.weight_E = self.features.counts().double().clamp_min(1)
            return
        once = history.distinct_in_order()
        example_Z = once.example_of_entry()
        entries_Z = torch.arange(once.num_entries, device=example_Z.device)
        weight_Z = 1 / (once.indptr[1:][example_Z] - entries_Z).float()
        sums_E = torch.zeros(once.num_examples, dtype=torch.int64, device=weight_Z.device)
        sums_E.index_add_(0, example_Z, weight_Z.double().mul_(2.0**FRACTION_BITS).long())
        self.features = once.with_values(weight_Z)
        self.weight_E = sums_E.double().mul_(2.0**-FRACTION_BITS).clamp_min(1)

    def add(self, logits_ET: Tensor, shard: int, start: int) -> None:
        """See `Term`."""
        units = logits_ET.shape[1]
        cell_N, mean_N = self.lists[shard].means(self.features, self.weight_E, start, units)
        logits_ET[cell_N // units, cell_N % units] += self._of_means(mean_N)

    def shares(self, shard: int, row: int) -> Tensor:
        """Return what each feature of the only example has of the term of a unit, float32 [Z].

        The term is no sum over features. Each has the part that its similarity has in the sum of all.

        Args:
            shard: A shard of this process.
            row: The unit, as row of the shard.
        """
        indices = self.features.indices
        alone = SparseBatch(torch.arange(len(indices) + 1, device=indices.device), indices)
        near_Z = torch.zeros(len(indices), dtype=torch.float64, device=indices.device)
        cell_N, mean_N = self.lists[shard].means(alone, torch.ones_like(near_Z), row, 1)
        near_Z[cell_N] = mean_N
        total = near_Z.sum(dim=0, keepdim=True)
        return (near_Z / total.clamp_min(2.0**-FRACTION_BITS) * self._of_means(total / self.weight_E)).float()

    def _of_means(self, mean_N: Tensor) -> Tensor:
        """Return terms, float32, of means of similarities, float64."""
        means = pad(mean_N, (0, -len(mean_N) % _COLUMNS)).div_(self.spec.floor).float()
        return means.log1p_().mul_(self.spec.weight)[: len(mean_N)]


def counted(output: WideOutput, dataset: Dataset, shard: int, number: int) -> Neighbours:
    """Return so many neighbours of each of a shard's units in the training part of a dataset."""
    term = output.spec.neighbourhood
    assert term is not None
    return neighbours(dataset, output.spec.field, output.weight.shards.units(shard), number, term.order)


def take_neighbours(output: WideOutput, shard: int, found: Neighbours) -> None:
    """Let a shard's units have these neighbours, with similarities by the specification."""
    term, own = output.spec.neighbourhood, output.lists[shard]
    assert term is not None
    own_Z = found.counts[as_slice(own.units)][found.positions]
    factors_Z = power(torch.from_numpy(own_Z / found.counts.max()), term.popularity).float()
    unit_Z = own.units.start + torch.from_numpy(found.positions) * own.units.step
    own.fill(unit_Z, torch.from_numpy(found.features), torch.from_numpy(found.similarities) * factors_Z)


def count_neighbours(output: WideOutput, dataset: Dataset) -> None:
    """Find the neighbours of an output with a neighbourhood term, if it is one."""
    term = output.spec.neighbourhood
    if term is not None:
        output.exchange.each(
            lambda shard: take_neighbours(output, shard, counted(output, dataset, shard, term.neighbours))
        )


def table_of(output: WideOutput) -> tuple[Tensor, Tensor]:
    """Return the neighbours of all L units, int64 [L, K], and their similarities, float32, on the host.

    All shards must be at hand. Empty places, the last of each unit, have neighbour L and similarity 0.
    """
    assert output.spec.neighbourhood is not None
    shape = output.width, output.spec.neighbourhood.neighbours
    neighbour_LK, similarity_LK = torch.full(shape, output.width), torch.zeros(shape)
    for own in output.lists.values():
        unit_Z, neighbour_Z, similarity_Z = own.entries()
        unit_Z, order_Z = torch.sort(unit_Z, stable=True)
        place_Z = torch.arange(len(unit_Z)) - torch.searchsorted(unit_Z, unit_Z)
        neighbour_LK[unit_Z, place_Z] = neighbour_Z[order_Z]
        similarity_LK[unit_Z, place_Z] = similarity_Z[order_Z]
    return neighbour_LK, similarity_LK


@torch.no_grad()
def shares(network: Network, example: SparseBatch, output_name: str, unit: int) -> Tensor:
    """Return what each feature of an example adds to the logit of a unit, float64 [Z].

    Their sum is the logit without the biases of all layers. Under "cosine" the length of the example's vector
    divides all of them. A neighbourhood term, which is no sum, is divided in proportion to the similarities.

    Args:
        network: The network; all its processes must call this.
        example: One example of the field that the network reads, in the host's memory.
        output_name: Name of the output.
        unit: The unit.

    Raises:
        FitError: The network is not linear.
    """
    if reason := why_no_shares(network.spec):
        rule = "A network can be explained if it reads one field and is linear up to its logits"
        raise FitError(f"{rule}; {reason}")
    layer = network.spec.inputs[0]
    if layer.values == "ignore":
        example = example.with_values(None)
    features = SparseBatch(torch.arange(example.num_entries + 1), example.indices, example.values)
    batch = stacked([example, features, from_rows([[]])])
    activity = network.forward(network.prepare({layer.field: batch}))
    output, factors_F = network.output_for(output_name, activity), network.damping.get(layer.name)
    together, alone = scaled(layer, batch, factors_F, in_training=False).values_or_ones().double().chunk(2)
    ratio_Z1 = torch.where(alone == 0, 0.0, together / alone)[:, None].to(network.device)
    if output_name in activity.prepared.features:
        inputs_EH = torch.zeros(batch.num_examples, 0, device=network.device)
    else:
        inputs_EH = torch.cat([activity.values[name] for name in network.spec.sources(output.spec)], dim=1)
    if output.spec.cosine is not None:
        length = float(inputs_EH[0].norm())
        inputs_EH = inputs_EH * (0.0 if length <= SHORTEST else 1 / (length * output.spec.cosine.finished))
    own, row = unit % output.weight.shards.count, unit // output.weight.shards.count

    def addends(shard: int) -> Tensor:
        term_Z = inputs_EH.new_zeros(example.num_entries)
        if shard != own:
            return torch.cat([inputs_EH.new_zeros(batch.num_examples), term_Z])
        logits_E1 = output.tile(shard, row, row + 1).products(inputs_EH)
        if output.spec.neighbourhood is not None:
            term = NearFeatures(output.spec.neighbourhood, output.lists, example.to(network.device))
            term_Z = term.shares(shard, row)
        return torch.cat([logits_E1[:, 0], term_Z])

    found = output.exchange.gather(output.exchange.each(addends), output.where)[own].double()
    logit_E, term_Z = torch.split(found, [batch.num_examples, example.num_entries])
    share_Z: Tensor = (logit_E[1:-1] - logit_E[-1]) * ratio_Z1[:, 0] + term_Z
    return share_Z.cpu()


def why_no_shares(spec: NetworkSpec) -> str | None:
    """Return what keeps the logits of a network from being explained; None if they can be."""
    if len(spec.inputs) > 1:
        return f"it has {len(spec.inputs)} inputs"
    reasons = ((layer.name, layer.why_not_linear()) for layer in spec.hidden)
    return next((f'"{name}" {reason}' for name, reason in reasons if reason), None)
