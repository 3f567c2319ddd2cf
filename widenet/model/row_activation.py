"""Activations that divide by a sum over the whole layer, whose units lie in many shards."""

import weakref
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from widenet.kernels import exact_sum, sum_by
from widenet.model.row_sum import RowSum, divided, over_shards

if TYPE_CHECKING:
    from widenet.model.layers.output import Tile
    from widenet.model.wide_loss import WideLoss


def _shares(logits_ET: Tensor, in_place: bool = True) -> tuple[Tensor, Tensor]:
    """exp(z - largest of the tile) float32 [E, T], in the logits' place if so asked, and the largest
    float32 [E].
    """
    peak_E = logits_ET.amax(dim=1)
    return (logits_ET.sub_(peak_E[:, None]) if in_place else logits_ET - peak_E[:, None]).exp_(), peak_E


class RowActivation:
    """softmax, relu_max or linear_max of one batch over one output, and the gradient through it.

    With a = f(z) / N, N = sum f (softmax: f = exp, relu_max: max(z, 0), linear_max: f = z and N = sum |z|),
    and g the loss's slope by a: dE/dz = f'(z) / N * (g - s * sum(g * a)), s = sign(z) for linear_max and 1
    otherwise. Under softmax the cross-entropies have the closed form p * sum(pulls) - pull.
    """

    def __init__(self, step: "WideLoss") -> None:
        self.step = weakref.proxy(
            step
        )  # it owns us: in a cycle, a batch's memory would wait for the garbage collector
        self.kind = step.activation.kind
        self.closed = self.kind == "softmax" and step.loss.slope_of_logit
        self.entry_logits: dict[int, Tensor] = {}
        self.pulls: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self.shares: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        self.total_E = torch.zeros(0)
        self.coupling_E = torch.zeros(0)

    @classmethod
    def over(cls, step: "WideLoss") -> "RowActivation":
        """The activation of a step, after the passes that its sums need."""
        rows = cls(step)
        exchange, where = step.output.exchange, step.output.where
        rows.total_E = over_shards(exchange.each(rows._sum), exchange, where)
        couple = rows._pull if rows.closed else rows._couple
        rows.coupling_E = exact_sum(exchange.gather(exchange.each(couple), where)).float()
        return rows

    def delta(self, shard: int, index: int, tile: "Tile") -> tuple[Tensor, Tensor]:
        """Loss float64 [] of a tile (of a shard's targets, with its first tile), and the gradient [E, T]
        to its logits.
        """
        if self.closed:
            entries = self.step.entries(shard, index)
            if (shard, index) in self.shares:
                share_ET, peak_E = self.shares.pop((shard, index))
            else:
                share_ET, peak_E = _shares(self.step.tile_logits(shard, index, tile))
            delta_ET = share_ET.mul_((torch.exp(peak_E - self.total_E) * self.coupling_E)[:, None])
            delta_ET.view(-1)[entries.places_Z] -= self.pulls[shard][entries.span]
            loss = self.loss(shard)
            return loss if index == 0 else torch.zeros_like(loss), delta_ET
        logits_ET = self.step.tile_logits(shard, index, tile)
        a_ET = divided(self.kind, logits_ET, self.total_E[:, None])
        loss, slope_ET = self.step.cells(logits_ET, a_ET, shard, index)
        coupling_E1, total_E1 = self.coupling_E[:, None], self.total_E[:, None]
        if self.kind == "softmax":
            return loss, a_ET * (slope_ET - coupling_E1)
        if self.kind == "relu_max":
            delta_ET = (slope_ET - coupling_E1) * (logits_ET > 0) / total_E1
        else:
            delta_ET = (slope_ET - torch.sign(logits_ET) * coupling_E1) / total_E1
        return loss, torch.where(total_E1 == 0, 0.0, delta_ET)

    def loss(self, shard: int) -> Tensor:
        """What a shard's targets add to a closed softmax's loss, float64 []."""
        return self.values[shard].sum(dtype=torch.float64)

    def _sum(self, shard: int) -> RowSum:
        """A shard's part of what the activation divides by; the closed form also notes the logits of the
        targets.
        """
        device = self.step.direct_EH.device
        if self.closed:
            self.entry_logits[shard] = torch.zeros(self._num_entries(shard), device=device)
        if self.step.fused is not None:
            return RowSum(self.kind, *self.step.fused.softmax_sums(shard, self.entry_logits[shard]))
        found = RowSum.empty(self.kind, self.step.num_examples, device)
        for index in range(len(self.step.tiles[shard])):
            logits_ET = self.step.tile_logits(shard, index)
            if self.closed:
                entries = self.step.entries(shard, index)
                self.entry_logits[shard][entries.span] = logits_ET.view(-1)[entries.places_Z]
            if not self.closed:
                self.step.keep_logits(shard, index, logits_ET)
            if self.kind != "softmax":
                found.add(logits_ET)
                continue
            shares = _shares(logits_ET, in_place=self.closed)
            found.add_shares(*shares)
            if self.closed and self.step.keeps:
                self.shares[shard, index] = shares
        return found

    def _pull(self, shard: int) -> Tensor:
        """Value and pull of every target of a shard under softmax; gives the pulls' sum float64 [E]."""
        step = self.step
        assert step.targets.sparse is not None
        part = step.targets.sparse[shard]
        examples_Z, values_Z = part.examples_Z, part.values_or_ones()
        log_p_Z = self.entry_logits.pop(shard) - self.total_E[examples_Z]
        share_Z = values_Z / step.targets.total_E[examples_Z].clamp_min(1e-30)
        value_Z, pull_Z = step.loss.pulls(log_p_Z, values_Z, share_Z)
        weight_Z = step.target_weight_E[examples_Z]
        self.pulls[shard] = pull_Z * weight_Z
        self.values[shard] = value_Z * weight_Z
        num_terms = part.num(step.output.weight.shards.size(shard))
        return sum_by(self.pulls[shard].double(), examples_Z, step.num_examples, num_terms)

    def _num_entries(self, shard: int) -> int:
        assert self.step.targets.sparse is not None
        return len(self.step.targets.sparse[shard].units_Z)

    def _couple(self, shard: int) -> Tensor:
        """A shard's sum of slope times activation, float64 [E]."""
        total_E = torch.zeros(self.step.num_examples, dtype=torch.float64, device=self.step.direct_EH.device)
        for index in range(len(self.step.tiles[shard])):
            logits_ET = self.step.tile_logits(shard, index)
            a_ET = divided(self.kind, logits_ET, self.total_E[:, None])
            total_E += (self.step.cells(logits_ET, a_ET, shard, index)[1] * a_ET).sum(dim=1)
            self.step.keep_logits(shard, index, logits_ET)
        return total_E
