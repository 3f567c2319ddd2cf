"""One step of an output with deferred rows: half the squared error and its gradients, without logits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels import gather_sum, row_gradient, sum_by
from widenet.model.deferred_rows import DeferredRows
from widenet.model.exchange import Pending
from widenet.model.rule import StepNumbers
from widenet.model.sharding import split
from widenet.plan.shards import Shards
from widenet.sparse import SparseBatch


@dataclass(frozen=True)
class SquareTargets:
    """The targets of E examples.

    Attributes:
        parts: The targets by shard.
        squares_E: Sum of the squares of each example's targets, float64.
    """

    parts: list[SparseBatch]
    squares_E: Tensor

    @classmethod
    def of(cls, targets: SparseBatch, shards: Shards) -> "SquareTargets":
        """Return the targets, cut by shards."""
        values_Z = targets.values_or_ones().double()
        squares_E = sum_by(values_Z * values_Z, targets.example_of_entry(), targets.num_examples)
        return cls(split(targets, shards), squares_E)


class SquareLoss:
    """The step of one batch.

    Rows w end with the bias, hidden vectors h end with a one, t are the targets, and s are the examples' loss
    weights. With Q = sum of w w' over all rows, and y = sum of t w over an example's targets:

        loss          = sum over examples of s / 2 * (h' Q h - 2 h' y + t' t)
        gradient to h = s (Q h - y)
        w becomes       w M + sum of rate s t h over the examples with this target
        with M        = I - sum of rate s h h' - rate * penalties
        Q becomes       M' Q M + X + X'
        with X        = sum of rate s h (M' y + g / 2)'

    where g is the change of y by the targets' own updates. Vincent, de Brebisson and Bouthillier, "Efficient
    exact gradient update for training deep networks with very large sparse targets", NeurIPS 2015, also keep
    Q, but store the rows as V U, for which U must be inverted; see docs/architecture.md.
    """

    def __init__(
        self, deferred_rows: DeferredRows, direct_EH: Tensor, targets: SquareTargets, weight_E: Tensor
    ) -> None:
        """Prepare the step.

        Args:
            deferred_rows: Rows of the output.
            direct_EH: Hidden vectors, float32.
            targets: Targets of E examples.
            weight_E: Per-example loss weights, float32 (own weight over the batch size).
        """
        self.deferred_rows, self.targets, self.hidden_units = deferred_rows, targets, direct_EH.shape[1]
        ones = [] if deferred_rows.bias is None else [torch.ones_like(direct_EH[:, :1])]
        self.direct_ED = torch.cat([direct_EH, *ones], dim=1).double()
        self.weight_E1 = weight_E.double()[:, None]

    def run(self, step: StepNumbers) -> Pending[list[Tensor]]:
        """Update the rows; start the loss float64 [] and the gradient to the vectors, float32 [E, H]."""
        deferred_rows = self.deferred_rows
        deferred_rows.begin(step.number)
        self.pull_ED = step.rate * self.weight_E1 * self.direct_ED
        change_DD = (
            -(self.pull_ED.T @ self.direct_ED) - step.rate * torch.diag(deferred_rows.penalty_D)
        ).float()
        sums = deferred_rows.exchange.each(
            lambda shard: self._move(shard, step.number, self.pull_ED.float(), change_DD)
        )
        self.pending = deferred_rows.exchange.start_sum(sums, where=deferred_rows.where)
        deferred_rows.turn(change_DD, step.number)
        self.change_DD = change_DD.double()
        return self

    def result(self) -> list[Tensor]:
        """Return loss and gradient; see `run`. Waits for the sums over the targets."""
        deferred_rows, pull_ED, change_DD = self.deferred_rows, self.pull_ED, self.change_DD
        target_ED, gained_ED = self.pending.result()[0].double().view(2, *pull_ED.shape)
        all_ED = self.direct_ED @ deferred_rows.gram
        turned_DD = deferred_rows.gram + deferred_rows.gram @ change_DD
        turned_DD += change_DD.T @ turned_DD
        crossed_DD = pull_ED.T @ (target_ED + target_ED @ change_DD + gained_ED / 2)
        deferred_rows.gram = turned_DD + crossed_DD + crossed_DD.T
        gradient_ED = self.weight_E1 * (all_ED - target_ED)
        return [self._loss(all_ED - 2 * target_ED), gradient_ED[:, : self.hidden_units].float()]

    def _move(self, shard: int, step: int, pull_ED: Tensor, change_DD: Tensor) -> Tensor:
        """Update the rows of the batch's targets.

        Returns:
            For every example, the sum of its targets' rows before the update, then the sum of the gains by
            the targets' own updates: float32 [2 E, D].
        """
        part = self.targets.parts[shard]
        units_U, places_Z = torch.unique(part.indices, return_inverse=True)
        batch, units_U = SparseBatch(part.indptr, places_Z, part.values), units_U.long()
        rows_UD = self.deferred_rows.rows(shard, units_U, step - 1)
        gain_UD = row_gradient(batch, pull_ED).rows()
        sums = torch.cat([gather_sum(batch, rows_UD), gather_sum(batch, gain_UD)])
        self.deferred_rows.put(shard, units_U, torch.addmm(rows_UD, rows_UD, change_DD).add_(gain_UD), step)
        return sums

    def _loss(self, crossed_ED: Tensor) -> Tensor:
        squares_E = (self.direct_ED * crossed_ED).sum(dim=1) + self.targets.squares_E
        return (self.weight_E1[:, 0] * squares_E).sum() / 2
