"""One step of a drifting output: half the squared difference of every unit, its gradients and the update,
without the logits.
"""

import torch
from torch import Tensor

from widenet.kernels import gather_sum, row_gradient, sum_by
from widenet.model.drift import Drift
from widenet.model.exchange import Pending
from widenet.model.rule import StepNumbers
from widenet.model.sharding import split
from widenet.sparse import SparseBatch


class SquareLoss:
    """The step of one batch.

    With rows w (biases last), hidden vectors h (a one last), targets t and what examples count, s, it rests
    on

        loss = sum over examples of s / 2 * (h' Q h - 2 h' y + t' t),   Q = sum of w w' over all rows, y = sum
        of t w over targets gradient to h = s (Q h - y) w becomes w M + sum of rate s t h over the examples
        that ask for it,   M = I - sum of rate s h h' - rate * penalties

    so that Q becomes M' Q M + X + X', X = sum of rate s h (M' y + g / 2)', where g is what this adds to the
    rows in y. Vincent, de Brebisson and Bouthillier, "Efficient exact gradient update for training deep
    networks with very large sparse targets", NeurIPS 2015, have Q too, but keep the rows as V U, for which U
    must be inverted; see docs/architecture.md.
    """

    def __init__(self, drift: Drift, direct_EH: Tensor, targets: SparseBatch, weight_E: Tensor) -> None:
        """weight_E: float32 [E], what each example counts in the loss (its own weight over the batch
        size).
        """
        self.drift, self.targets, self.hidden_units = drift, targets, direct_EH.shape[1]
        ones = [] if drift.bias is None else [torch.ones_like(direct_EH[:, :1])]
        self.direct_ED = torch.cat([direct_EH, *ones], dim=1).double()
        self.weight_E1 = weight_E.double()[:, None]
        self.parts = split(targets, drift.weight.shards)

    def run(self, step: StepNumbers) -> Pending[list[Tensor]]:
        """The loss float64 [] and the gradient float32 [E, H] to the hidden vectors, on their way; the
        rows have made the step.
        """
        drift = self.drift
        drift.begin(step.number)
        self.pull_ED = step.rate * self.weight_E1 * self.direct_ED
        change_DD = (-(self.pull_ED.T @ self.direct_ED) - step.rate * torch.diag(drift.penalty_D)).float()
        found = drift.exchange.each(
            lambda shard: self._move(shard, step.number, self.pull_ED.float(), change_DD)
        )
        self.travel = drift.exchange.start_sum(found, where=drift.where)
        drift.turn(change_DD, step.number)
        self.change_DD = change_DD.double()
        return self

    def result(self) -> list[Tensor]:
        """What `run` gives, once it is known what the examples' targets add up to."""
        drift, pull_ED, change_DD = self.drift, self.pull_ED, self.change_DD
        asked_ED, gained_ED = self.travel.result()[0].double().view(2, *pull_ED.shape)
        given_ED = self.direct_ED @ drift.gram
        turned_DD = drift.gram + drift.gram @ change_DD
        turned_DD += change_DD.T @ turned_DD
        crossed_DD = pull_ED.T @ (asked_ED + asked_ED @ change_DD + gained_ED / 2)
        drift.gram = turned_DD + crossed_DD + crossed_DD.T
        gradient_ED = self.weight_E1 * (given_ED - asked_ED)
        return [self._loss(given_ED - 2 * asked_ED), gradient_ED[:, : self.hidden_units].float()]

    def _move(self, shard: int, step: int, pull_ED: Tensor, change_DD: Tensor) -> Tensor:
        """The step of the rows that a batch asks for.

        Gives what every example's add up to before it, and below that, what they gain by each other's pull:
        float32 [2 E, D].
        """
        part = self.parts[shard]
        units_U, places_Z = torch.unique(part.indices, return_inverse=True)
        batch, units_U = SparseBatch(part.indptr, places_Z, part.values), units_U.long()
        rows_UD = self.drift.rows(shard, units_U, step - 1)
        gain_UD = row_gradient(batch, pull_ED).rows()
        found = torch.cat([gather_sum(batch, rows_UD), gather_sum(batch, gain_UD)])
        self.drift.put(shard, units_U, torch.addmm(rows_UD, rows_UD, change_DD).add_(gain_UD), step)
        return found

    def _loss(self, crossed_ED: Tensor) -> Tensor:
        values_Z = self.targets.values_or_ones().double()
        squares_E = sum_by(values_Z * values_Z, self.targets.example_of_entry(), len(crossed_ED))
        return (self.weight_E1[:, 0] * ((self.direct_ED * crossed_ED).sum(dim=1) + squares_E)).sum() / 2
