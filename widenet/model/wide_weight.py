"""A wide weight: rows cut into shards with their optimizer state, updated by tiles or by touched rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.passes import Stepped
from widenet.kernels.rows import copied
from widenet.kernels.scratch import read_around, release, scratch_of
from widenet.model.host_memory import HostMemory
from widenet.model.limits import shorten_rows
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.part import Part
from widenet.plan.shards import Shards
from widenet.plan.tiles import blocks

WHOLE = -1
"""In the place of a shard: all shards of a process, as rows of `WideWeight.whole`."""

_ROWS_AT_ONCE = 65_536
"""Rows that catch up together when all rows of a shard do, unless they are copied."""


@dataclass
class Taken:
    """Rows of the host's memory that a step has on the device.

    Attributes:
        rows_U: The rows among those of all shards of a process, int64 in the host's memory.
        places_U: The same on the device.
        features: The rows of each shard, or of `WHOLE`, one after the other in `rows_U`, on the device.
        copies: The rows.
        with_state: Whether their state came along, so that they may change.
    """

    rows_U: Tensor
    places_U: Tensor
    features: Mapping[int, Tensor]
    copies: Part
    with_state: bool

    def of(self, shard: int, rows_U: Tensor) -> Part | None:
        """Return the copies of a shard's rows if they may change and are just these rows of a batch."""
        start = 0
        for each, features_U in self.features.items():
            if each == shard and features_U is rows_U and self.with_state:
                return self.copies.views(start, start + len(rows_U))
            start += len(features_U)
        return None


@dataclass
class WideWeight:
    """A weight [width, H] or a bias [width], with its rows cut into shards.

    Attributes:
        shards: All shards.
        parts: The shards of this process.
        norm_limit: Largest length of a row.
        l2: Strength of the penalty on a bias.
        trained: Whether the optimizer moves it; otherwise it has no state.
        by_rows: Whether only rows that a batch touches are updated.
        is_swept: Whether steps pass over all rows even so, to shorten or describe them.
        whole: On CUDA, the shards of this process in one allocation, of which the parts are views: a shard
            begins `shards.room` rows after the one before it. Rows beyond a shard's units are zeros.
        taken: The rows that the step at work has brought from the host's memory.
    """

    shards: Shards
    parts: dict[int, Part]
    norm_limit: float | None = None
    l2: float = 0.0
    by_rows: bool = False
    is_swept: bool = False
    trained: bool = True
    whole: Part | None = None
    taken: Taken | None = None

    def lay_out(self, whole: Part, held: Sequence[int]) -> None:
        """Take the parts of the shards of this process from one allocation."""
        self.whole, room = whole, self.shards.room
        self.parts = {
            shard: whole.views(place * room, place * room + self.shards.size(shard))
            for place, shard in enumerate(held)
        }

    @property
    def is_bias(self) -> bool:
        """Whether this has one number per unit."""
        return next(iter(self.parts.values())).weight.dim() == 1

    @property
    def columns(self) -> int:
        """H."""
        return next(iter(self.parts.values())).columns

    @property
    def host(self) -> HostMemory | None:
        """The host's memory if the rows lie there while a device computes them."""
        return None if self.whole is None else self.whole.host

    @property
    def device(self) -> torch.device:
        """The device that computes the rows."""
        return next(iter(self.parts.values())).weight.device if self.host is None else self.host.device

    @property
    def in_8_bits(self) -> bool:
        """Whether the rows are whole numbers with a scale for each."""
        return next(iter(self.parts.values())).in_8_bits

    @property
    def in_files(self) -> bool:
        """Whether the rows are in a file."""
        return any(scratch_of(part.weight) is not None for part in self.parts.values())

    def part(self, shard: int) -> Part:
        """Return a shard of this process, or all of them for `WHOLE`."""
        if shard != WHOLE:
            return self.parts[shard]
        assert self.whole is not None
        return self.whole

    def prepare(self, rule: Optimizer) -> None:
        """Allocate the optimizer's state."""
        if not self.trained:
            return
        for part in [*self.parts.values()] if self.whole is None else [self.whole]:
            part.prepare(rule, remembers=self.by_rows and rule.idles)
        if self.whole is not None:
            self.lay_out(self.whole, [*self.parts])

    def update_tile(
        self,
        shard: int,
        start: int,
        stop: int,
        gradient: Tensor | RowGradient,
        rule: Optimizer,
        step: StepNumbers,
    ) -> None:
        """Make a step of the rows [start, stop) of a shard, or of touched columns in all rows."""
        if not self.trained:
            return
        if isinstance(gradient, RowGradient):
            self.update_rows(shard, gradient, rule, step)
            return
        weight, state = self.part(shard).rows(start, stop)
        rule.apply(weight, gradient, state, step, self.l2 if self.is_bias else None)
        if self.norm_limit is not None:
            shorten_rows(weight, self.norm_limit)

    def stepped(self, shard: int, rule: Optimizer, step: StepNumbers) -> Stepped | None:
        """Return a shard's rows with their step for the native library; None if it does not make it."""
        if self._waits_for_tiles:
            return None
        part = self.parts[shard]
        made = rule.library_step(part.weight, step, self.l2 if self.is_bias else None)
        return None if made is None else Stepped(part.weight, [*part.state.values()], made)

    def update_rows(self, shard: int, touched: RowGradient, rule: Optimizer, step: StepNumbers) -> None:
        """Make a step of the touched rows of a shard, or of `WHOLE`; a bias is a row of one number.

        If only the optimizer's state changes without a gradient, it catches up here.
        """
        with self._at_hand(shard, touched.features_U) as (part, rows_U):
            weight_RH, state = part.by_rows()
            own = touched if rows_U is touched.features_U else replace(touched, features_U=rows_U)
            rule.apply_to_rows(weight_RH, own, state, part.moved, step, self.l2 if self.is_bias else None)

    @property
    def _waits_for_tiles(self) -> bool:
        """Whether only `update_tile` can make its steps."""
        return self.norm_limit is not None or not self.trained

    def catch_up(self, shard: int, rows_U: Tensor, rule: Optimizer, step: StepNumbers) -> None:
        """Apply the steps that some rows of a shard, or of `WHOLE`, have skipped, with zero gradients."""
        if self.part(shard).moved is None:
            return
        with self._at_hand(shard, rows_U) as (part, own_U):
            weight_RH, state = part.by_rows()
            assert part.moved is not None
            for start, stop in blocks(len(own_U), weight_RH.shape[1], weight_RH.device.type):
                block_U = own_U[start:stop]
                with copied(weight_RH, state, block_U) as (weight_UH, state_of_rows):
                    rule.idle(
                        weight_UH,
                        state_of_rows,
                        part.moved.index_select(0, block_U),
                        step.number - 1,
                        step.rates,
                        self.is_bias,
                    )
                part.moved.index_fill_(0, block_U, step.number - 1)

    def take(self, rows: Mapping[int, Tensor], features: Mapping[int, Tensor], with_state: bool) -> None:
        """Bring some rows from the host's memory to the device.

        Args:
            rows: Rows by shard or of `WHOLE`, int64 in the host's memory, ascending.
            features: The same on the device.
            with_state: Whether a step updates them.
        """
        assert self.whole is not None
        rows_U = torch.cat([own_U + self.first_row(shard) for shard, own_U in rows.items()])
        places_U = torch.cat([own_U + self.first_row(shard) for shard, own_U in features.items()])
        copies = self.whole.taken(rows_U, with_state)
        self.taken = Taken(rows_U, places_U, features, copies, with_state)

    def let_go(self) -> None:
        """Write the rows that `take` has brought back to the host's memory if they may have changed."""
        taken, self.taken = self.taken, None
        if taken is not None and taken.with_state:
            assert self.whole is not None
            self.whole.put_back(taken.rows_U, taken.copies)

    def select(self, shard: int, rows_U: Tensor) -> Tensor:
        """Return float32 copies of some rows of a shard's weight, int64 [U], where they are computed."""
        if self.host is None:
            return self.parts[shard].weight.index_select(0, rows_U).float()
        self.let_go()
        return self.host.brought(self.parts[shard].weight, rows_U.cpu())

    def put(self, shard: int, rows_U: Tensor, weight_UH: Tensor) -> None:
        """Write some rows of a shard's weight, int64 [U]."""
        if self.host is None:
            self.parts[shard].weight.index_copy_(0, rows_U, weight_UH)
        else:
            self.host.put_back([(self.parts[shard].weight, weight_UH)], rows_U.cpu())

    def first_row(self, shard: int) -> int:
        """Return the first row of a shard among those of all shards of this process."""
        return 0 if shard == WHOLE else [*self.parts].index(shard) * self.shards.room

    @contextmanager
    def _at_hand(self, shard: int, rows_U: Tensor) -> Iterator[tuple[Part, Tensor]]:
        """Give a part that holds some rows where they are computed, and the places of these rows in it."""
        part = self.part(shard)
        if part.host is None:
            yield part, rows_U
            return
        copies = None if self.taken is None else self.taken.of(shard, rows_U)
        places_U = torch.arange(len(rows_U), device=part.host.device)
        if copies is not None:
            yield copies, places_U
            return
        self.let_go()
        self.take({shard: rows_U.cpu()}, {shard: rows_U.to(part.host.device)}, with_state=True)
        assert self.taken is not None
        yield self.taken.copies, places_U
        self.let_go()

    def catch_up_all(self, rule: Optimizer, step: StepNumbers) -> None:
        """Let every row of this process catch up, a block at a time."""
        for shard, part in self.parts.items():
            count = 0 if part.moved is None else len(part.by_rows()[0])
            for start in range(0, count, _ROWS_AT_ONCE):
                rows = torch.arange(start, min(start + _ROWS_AT_ONCE, count), device=part.weight.device)
                tensors = [] if part.by_columns else [part.weight, *part.state.values()]
                blocks = [tensor[start : start + len(rows)] for tensor in tensors]
                for block in blocks:
                    read_around(block)
                self.catch_up(shard, rows, rule, step)
                for block in blocks:
                    release(block)
