"""Activations that divide by a sum over the whole layer, whose units lie in many shards."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from widenet.model.wide_loss import WideLoss


class RowActivation:
    """softmax, relu_max or linear_max of one batch over one output, and the gradient through it.

    With a = f(z) / N, N = sum f (softmax: f = exp, relu_max: max(z, 0), linear_max: f = z and N = sum |z|), and g the loss's slope by a:
    dE/dz = f'(z) / N * (g - s * sum(g * a)), s = sign(z) for linear_max and 1 otherwise.
    Under softmax the cross-entropies have the closed form p * sum(pulls) - pull.
    """

    def __init__(self, step: "WideLoss") -> None:
        self.step = step
        self.kind = step.activation.kind
        self.closed = self.kind == "softmax" and step.loss.slope_of_logit
        self.entry_logits: dict[tuple[int, int], Tensor] = {}
        self.pulls: dict[tuple[int, int], Tensor] = {}
        self.losses: dict[int, Tensor] = {}
        self.log_sum_E = torch.zeros(0)
        self.sum_E = torch.zeros(0)
        self.coupling_E = torch.zeros(0)

    @classmethod
    def over(cls, step: "WideLoss") -> "RowActivation":
        """The activation of a step, after the passes that its sums need."""
        rows = cls(step)
        exchange = step.output.exchange
        found = exchange.each(rows._sums)
        if rows.kind == "softmax":
            rows._normalise([peak for peak, _ in found], [total for _, total in found])
        else:
            rows.sum_E = exchange.sum([total for _, total in found]).float()
        couple = rows._pull if rows.closed else rows._couple
        rows.coupling_E = exchange.sum(exchange.each(couple)).float()
        return rows

    def delta(self, logits_ET: Tensor, shard: int, index: int) -> tuple[Tensor, Tensor]:
        """Loss float64 [E] of a tile, and the gradient [E, T] to its logits."""
        a_ET = self._activations(logits_ET)
        if self.closed:
            entries = self.step.entries[shard][index]
            delta_ET = a_ET.mul_(self.coupling_E[:, None])
            delta_ET.view(-1)[entries.places_Z] -= self.pulls[shard, index]
            empty_E = torch.zeros(len(a_ET), dtype=torch.float64, device=a_ET.device)
            return (self.losses[shard] if index == 0 else empty_E), delta_ET
        loss_E, slope_ET = self.step.cells(logits_ET, a_ET, shard, index)
        coupling_E1 = self.coupling_E[:, None]
        if self.kind == "softmax":
            return loss_E, a_ET * (slope_ET - coupling_E1)
        sum_E1 = self.sum_E[:, None]
        if self.kind == "relu_max":
            delta_ET = (slope_ET - coupling_E1) * (logits_ET > 0) / sum_E1
        else:
            delta_ET = (slope_ET - torch.sign(logits_ET) * coupling_E1) / sum_E1
        return loss_E, torch.where(sum_E1 == 0, 0.0, delta_ET)

    def _activations(self, logits_ET: Tensor) -> Tensor:
        if self.kind == "softmax":
            return torch.exp(logits_ET - self.log_sum_E[:, None])
        parts_ET = torch.relu(logits_ET) if self.kind == "relu_max" else logits_ET
        return torch.where(self.sum_E[:, None] == 0, 0.0, parts_ET / self.sum_E[:, None])

    def _sums(self, shard: int) -> tuple[Tensor, Tensor]:
        """A shard's largest logit [E] (softmax) and its sum of f [E], float64, of exp(z - largest) for softmax."""
        num, device = self.step.num_examples, self.step.direct_EH.device
        peak_E = torch.full((num,), -torch.inf, device=device)
        total_E = torch.zeros(num, dtype=torch.float64, device=device)
        for index in range(len(self.step.tiles[shard])):
            logits_ET = self.step.tile_logits(shard, index)
            if self.kind == "softmax":
                higher_E = torch.maximum(peak_E, logits_ET.amax(dim=1))
                total_E *= torch.exp((peak_E - higher_E).double())
                total_E += torch.exp(logits_ET - higher_E[:, None]).sum(dim=1)
                peak_E = higher_E
                if self.closed:
                    self.entry_logits[shard, index] = logits_ET.view(-1)[self.step.entries[shard][index].places_Z]
            else:
                total_E += (torch.relu(logits_ET) if self.kind == "relu_max" else logits_ET.abs()).sum(dim=1)
            self.step.keep_logits(shard, index, logits_ET)
        return peak_E, total_E

    def _normalise(self, peaks: list[Tensor], totals: list[Tensor]) -> None:
        exchange = self.step.output.exchange
        peak_E = exchange.max(peaks)
        scaled = [total_E * torch.exp((own_E - peak_E).double()) for own_E, total_E in zip(peaks, totals, strict=True)]
        self.log_sum_E = (peak_E.double() + torch.log(exchange.sum(scaled))).float()

    def _pull(self, shard: int) -> Tensor:
        """Value and pull of every target of a shard under softmax; gives the pulls' sum float64 [E]."""
        step = self.step
        total_E = torch.zeros(step.num_examples, dtype=torch.float64, device=step.direct_EH.device)
        loss_E = torch.zeros_like(total_E)
        for index, entries in enumerate(step.entries[shard]):
            examples_Z = entries.examples_Z
            log_p_Z = self.entry_logits.pop((shard, index)) - self.log_sum_E[examples_Z]
            share_Z = entries.values_Z / step.targets.total_E[examples_Z].clamp_min(1e-30)
            value_Z, pull_Z = step.loss.pulls(log_p_Z, entries.values_Z, share_Z)
            weight_Z = step.target_weight_E[examples_Z]
            self.pulls[shard, index] = pull_Z * weight_Z
            loss_E.index_add_(0, examples_Z, (value_Z * weight_Z).double())
            total_E.index_add_(0, examples_Z, self.pulls[shard, index].double())
        self.losses[shard] = loss_E
        return total_E

    def _couple(self, shard: int) -> Tensor:
        """A shard's sum of slope times activation, float64 [E]."""
        total_E = torch.zeros(self.step.num_examples, dtype=torch.float64, device=self.step.direct_EH.device)
        for index in range(len(self.step.tiles[shard])):
            logits_ET = self.step.tile_logits(shard, index)
            a_ET = self._activations(logits_ET)
            total_E += (self.step.cells(logits_ET, a_ET, shard, index)[1] * a_ET).sum(dim=1)
            self.step.keep_logits(shard, index, logits_ET)
        return total_E
