"""Deferred updates of an output's rows: a step gives all rows one matrix, and rows catch up when read."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from widenet.model.exchange import Exchange
from widenet.model.wide_weight import WideWeight
from widenet.plan.deferred_rows import CATCH_UP_BLOCK_ROWS, GRAM_WINDOWS


@dataclass
class DeferredRows:
    """The matrices that act on an output's rows, and the sum of the rows' outer products.

    A row [D] holds the weights of a unit, then its bias. The last step in which a row was written is in the
    state of the weight's parts, "moved", int32 [R].

    Attributes:
        weight: Weight of the output.
        bias: Its bias, if it has one.
        exchange: Exchange between the shards.
        where: Name of the layer, for the message if a process is lost.
        window: Number of steps after which all rows catch up. So all rows were written in steps `base` to
            `base + window`.
        penalty_D: Strength of the penalty on the square of each number of a row, float64.
        products: float32 [window + 1, D, D]; a row written in step base + n must be multiplied by
            products[n].
        gram: Sum of the outer products of all rows of all shards, float64 [D, D].
    """

    weight: WideWeight
    bias: WideWeight | None
    exchange: Exchange
    where: str
    window: int
    penalty_D: Tensor
    products: Tensor = field(default_factory=lambda: torch.empty(0))
    gram: Tensor = field(default_factory=lambda: torch.empty(0))

    def prepare(self) -> None:
        """Allocate the matrices and the steps of the rows."""
        columns, device = len(self.penalty_D), self.penalty_D.device
        self.products = torch.eye(columns, device=device).repeat(self.window + 1, 1, 1)
        self.gram = torch.zeros(columns, columns, dtype=torch.float64, device=device)
        for part in self.weight.parts.values():
            part.state["moved"] = torch.zeros(len(part.weight), dtype=torch.int32, device=device)

    def begin(self, step: int) -> None:
        """Prepare a step (from 1): the first of a window lets rows catch up, and may recompute `gram`."""
        if (step - 1) % self.window:
            return
        self.catch_up(step - 1)
        self.products[0] = torch.eye(len(self.gram), device=self.gram.device)
        if (step - 1) % (self.window * GRAM_WINDOWS) == 0:
            self.gram = self.exchange.sum(self.exchange.each(self._sum_of_products), self.where)

    def turn(self, change_DD: Tensor, step: int) -> None:
        """Record that a step changes every row: row += row @ change, float32 [D, D]."""
        now = step - self._base(step)
        rows = self.products[:now].view(-1, len(change_DD))
        rows.copy_(torch.addmm(rows, rows, change_DD))
        self.products[now] = torch.eye(len(change_DD), device=change_DD.device)

    def catch_up(self, step: int) -> None:
        """Bring every row up to date, after `step`, the last one."""
        self.exchange.each(lambda shard: self._catch_up(shard, step))

    def rows(self, shard: int, units_U: Tensor, step: int) -> Tensor:
        """Return some rows of a shard after `step`, the last one: float32 [U, D]."""
        since_U = self._moved(shard).index_select(0, units_U) - self._base(step)
        since_U, order_U = torch.sort(since_U, stable=True)
        ages, counts = torch.unique_consecutive(since_U, return_counts=True)
        stored_UD = self._stored(shard, units_U[order_U])
        turned_UD = torch.empty_like(stored_UD)
        groups = (torch.split(rows_UD, counts.tolist()) for rows_UD in (stored_UD, turned_UD))
        for stored, turned, age in zip(*groups, ages.tolist(), strict=True):
            torch.mm(stored, self.products[age], out=turned)
        return torch.empty_like(stored_UD).index_copy_(0, order_U, turned_UD)

    def put(self, shard: int, units_U: Tensor, rows_UD: Tensor, step: int) -> None:
        """Write some rows of a shard as they are after a step."""
        self.weight.put(shard, units_U, rows_UD[:, : self.weight.parts[shard].weight.shape[1]])
        self._moved(shard).index_fill_(0, units_U, step)
        if self.bias is not None:
            self.bias.parts[shard].weight.index_copy_(0, units_U, rows_UD[:, -1])

    def is_finite(self) -> bool:
        """Return whether the matrices are finite, so that rows can catch up."""
        return bool(torch.isfinite(self.products).all()) and bool(torch.isfinite(self.gram).all())

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors for a checkpoint, besides the state of the weight."""
        return {"products": self.products, "gram": self.gram}

    def _base(self, step: int) -> int:
        """Return the step before the window to which a step belongs."""
        return max(step - 1, 0) // self.window * self.window

    def _moved(self, shard: int) -> Tensor:
        return self.weight.parts[shard].state["moved"]

    def _stored(self, shard: int, units_U: Tensor) -> Tensor:
        weight_UH = self.weight.select(shard, units_U)
        if self.bias is None:
            return weight_UH
        return torch.cat([weight_UH, self.bias.parts[shard].weight.index_select(0, units_U)[:, None]], dim=1)

    def _catch_up(self, shard: int, step: int) -> None:
        by_age_R = torch.argsort(self._moved(shard), stable=True)
        for units_T in torch.split(by_age_R, CATCH_UP_BLOCK_ROWS):
            self.put(shard, units_T, self.rows(shard, units_T, step), step)

    def _sum_of_products(self, shard: int) -> Tensor:
        total_DD = torch.zeros_like(self.gram)
        units_R = torch.arange(len(self._moved(shard)), device=total_DD.device)
        for units_T in torch.split(units_R, CATCH_UP_BLOCK_ROWS):
            rows_TD = self._stored(shard, units_T)
            total_DD += rows_TD.T @ rows_TD
        return total_DD
