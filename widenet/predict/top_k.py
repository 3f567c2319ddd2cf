"""The k best units of an output for every example of a batch, without ever holding all its scores."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels import RunningTopK, exact_sum
from widenet.kernels.running_top_k import best
from widenet.model.activations import activate
from widenet.model.layers.output import WideOutput
from widenet.model.network import Network, Values
from widenet.model.row_activation import log_sum_exp
from widenet.model.sharding import ByUnit, split
from widenet.sparse import SparseBatch
from widenet.spec.activations import ROW_WISE

_TILE_CELLS = 2**21
_RISING = ("linear", "sigmoid", "tanh", "softplus", "softsign", "selu", "leaky_relu", "elu", "softmax")
"""Activations under which a larger logit is a larger score, so that logits give the ranking."""


@dataclass(frozen=True)
class Filter:
    """What must not be recommended, and what counts more or less.

    banned_L: bool [L], units that nobody is shown.
    weight_L: float32 [L], factors of at least 0 on the scores; a unit of weight 0 is shown to nobody.
    """

    banned_L: Tensor | None = None
    weight_L: Tensor | None = None

    def within(self, num_units: int, output: WideOutput) -> "Filter":
        """This filter, which also leaves out the units from `num_units` on: an output's room for units to come."""
        if num_units >= output.width:
            return self
        room_L = torch.arange(output.width, device=next(iter(output.weight.parts.values())).weight.device) >= num_units
        return Filter(room_L if self.banned_L is None else room_L | self.banned_L, self.weight_L)


def top_k(
    network: Network,
    fields: Mapping[str, Values],
    output_name: str,
    k: int,
    excluded: SparseBatch | None = None,
    allowed: Filter | None = None,
    scores: bool = True,
) -> tuple[Tensor, Tensor]:
    """Scores float32 [E, K] descending and units int64 [E, K] of the best units, K = min(k, width).

    excluded: units that must not appear, example by example. Where fewer than K units are left, places hold -inf and -1.
    Of equal scores the lower unit comes first. Scores are activations, times the filter's weights.
    scores: False leaves logits in their place where those give the same ranking, which a softmax makes much cheaper.
    """
    with torch.no_grad():
        output = network.outputs[output_name]
        prepared = network.prepare(fields, None)
        direct_EH = network.direct(output, network.forward(prepared, None))
        return _Ranking(output, direct_EH, min(k, output.width), excluded, allowed or Filter(), scores).run()


class _Ranking:
    def __init__(self, output: WideOutput, direct_EH: Tensor, k: int, excluded: SparseBatch | None, allowed: Filter, scores: bool) -> None:
        self.output, self.direct_EH, self.k, self.allowed = output, direct_EH, k, allowed
        self.shards = output.weight.shards
        self.excluded = None if excluded is None else [ByUnit.of(part) for part in split(excluded, self.shards)]
        self.activation = output.spec.activation
        self.scores = scores
        self.by_logit = allowed.weight_L is None and self.activation.kind in _RISING
        self.width = max(64, _TILE_CELLS // max(len(direct_EH), 1))

    def run(self) -> tuple[Tensor, Tensor]:
        exchange, where = self.output.exchange, self.output.where
        total_E1 = self._totals() if self.activation.kind in ROW_WISE and (self.scores or not self.by_logit) else None
        found = exchange.each(lambda shard: self._best_of(shard, total_E1))
        logits_EN = torch.cat(exchange.gather([logits for logits, _ in found], where), dim=1)
        units_EN = torch.cat(exchange.gather([units for _, units in found], where), dim=1)
        ranked_EK, units_EK = best(logits_EN, units_EN, self.k)
        scores_EK = self._scores(ranked_EK, total_E1) if self.by_logit and self.scores else ranked_EK
        missing = ranked_EK == -torch.inf
        return scores_EK.masked_fill(missing, -torch.inf), units_EK.masked_fill(missing, -1)

    def _best_of(self, shard: int, total_E1: Tensor | None) -> tuple[Tensor, Tensor]:
        running = RunningTopK(len(self.direct_EH), self.k, self.direct_EH.device)
        first = self.shards.start(shard)
        for start, stop in self._tiles(shard):
            ranked_ET = self.output.tile(shard, start, stop).logits(self.direct_EH)
            if not self.by_logit:
                ranked_ET = self._scores(ranked_ET, total_E1)
                if self.allowed.weight_L is not None:
                    weight_T = self.allowed.weight_L[first + start : first + stop]
                    ranked_ET = (ranked_ET * weight_T).masked_fill(weight_T == 0, -torch.inf)
            if self.allowed.banned_L is not None:
                ranked_ET = ranked_ET.masked_fill(self.allowed.banned_L[first + start : first + stop], -torch.inf)
            if self.excluded is not None:
                part = self.excluded[shard]
                low, high = part.edges([start, stop])
                ranked_ET[part.examples_Z[low:high], part.units_Z[low:high] - start] = -torch.inf
            running.add(ranked_ET, first + start)
        logits_EK, units_EK = running.result()
        missing = self.k - logits_EK.shape[1]
        return pad(logits_EK, (0, missing), value=-torch.inf), pad(units_EK, (0, missing), value=-1)

    def _scores(self, logits: Tensor, total_E1: Tensor | None) -> Tensor:
        if total_E1 is None:
            return activate(self.activation, logits)
        if self.activation.kind == "softmax":
            return torch.exp(logits - total_E1)
        parts = torch.relu(logits) if self.activation.kind == "relu_max" else logits
        return torch.where(total_E1 > 0, parts / total_E1, 0.0)

    def _totals(self) -> Tensor:
        """The sum over all units that a row-wise activation divides by, float32 [E, 1]; of softmax its logarithm."""
        exchange, where = self.output.exchange, self.output.where
        found = exchange.each(self._total)
        if self.activation.kind == "softmax":
            return log_sum_exp(found, exchange, where)[:, None]
        return exact_sum(exchange.gather([total_E for _, total_E in found], where)).float()[:, None]

    def _total(self, shard: int) -> tuple[Tensor, Tensor]:
        """A shard's largest logit [E] and its sum [E], float64; for softmax of exp(z - largest)."""
        peak_E = torch.full((len(self.direct_EH),), -torch.inf, device=self.direct_EH.device)
        total_E = torch.zeros(len(self.direct_EH), dtype=torch.float64, device=self.direct_EH.device)
        for start, stop in self._tiles(shard):
            logits_ET = self.output.tile(shard, start, stop).logits(self.direct_EH)
            if self.activation.kind == "softmax":
                higher_E = torch.maximum(peak_E, logits_ET.amax(dim=1))
                total_E *= torch.exp((peak_E - higher_E).double())
                total_E += torch.exp(logits_ET - higher_E[:, None]).sum(dim=1)
                peak_E = higher_E
            else:
                total_E += (torch.relu(logits_ET) if self.activation.kind == "relu_max" else logits_ET.abs()).sum(dim=1)
        return peak_E, total_E

    def _tiles(self, shard: int) -> list[tuple[int, int]]:
        size = self.shards.size(shard)
        return [(start, min(start + self.width, size)) for start in range(0, size, self.width)]
