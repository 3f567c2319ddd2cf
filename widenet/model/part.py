"""One shard of a wide weight: its rows, their optimizer state, and where they are computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from widenet.kernels.bags import gather_sum
from widenet.kernels.rows import roomy
from widenet.kernels.scratch import fetch_rows, unmap
from widenet.model.host_memory import HostMemory
from widenet.model.optimizers import Optimizer
from widenet.model.sweep import Course, Sweep, sweep_over, swept
from widenet.plan.streaming import block_rows
from widenet.sparse import SparseBatch


@dataclass
class Part:
    """One shard of a wide weight.

    Attributes:
        weight: float32 [R, H], or [R] for biases.
        state: In training, the optimizer's tensors of the weight's shape.
        moved: Last step of each row, int32 [R]; None unless the optimizer changes rows without a gradient.
        by_columns: Whether a batch touches columns, which are then contiguous in memory; `moved` is [H].
        host: The host's memory if the tensors lie there; they are computed on the device.
        near: A pass over the rows in the host's memory, while it is under way.
        in_8_bits: Whether this is a `QuantizedPart`.
        course: The passes over rows in files to which those over these belong, while they are under way.
    """

    weight: Tensor
    state: dict[str, Tensor] = field(default_factory=dict)
    moved: Tensor | None = None
    by_columns: bool = False
    host: HostMemory | None = None
    near: Sweep | None = None
    in_8_bits: ClassVar[bool] = False
    course: Course | None = None

    @property
    def columns(self) -> int:
        """H."""
        return self.weight.shape[1]

    def prepare(self, rule: Optimizer, remembers: bool) -> None:
        """Allocate the optimizer's state, and `moved` if the last step of each row must be remembered."""
        weight = self.weight.T if self.by_columns else self.weight
        state = rule.state_for(weight)
        self.state = {name: tensor.T for name, tensor in state.items()} if self.by_columns else state
        if remembers:
            self.moved = roomy(weight.shape[:1], torch.int32, weight.device)

    def views(self, start: int, stop: int) -> "Part":
        """Return views of the rows [start, stop); not of a weight by columns."""
        assert not self.by_columns
        state = {name: tensor[start:stop] for name, tensor in self.state.items()}
        moved = None if self.moved is None else self.moved[start:stop]
        return Part(self.weight[start:stop], state, moved, host=self.host)

    def rows(self, start: int, stop: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Return weight and state of the rows [start, stop) where they are computed.

        Of the host's memory these are rows that a pass has brought; a pass that only reads brings no state.
        Without a pass the weight is a copy.
        """
        if self.host is None:
            return self.weight[start:stop], {name: state[start:stop] for name, state in self.state.items()}
        if self.near is None:
            return self.weight[start:stop].to(self.host.device), {}
        weight_TH, *states = self.near.rows(start, stop)
        return weight_TH, dict(zip(self.state, states, strict=False))

    def gathered(self, batch: SparseBatch) -> Tensor:
        """Return the sums of the rows of each example's features, float32 [E, H]; see `gather_sum`."""
        return gather_sum(batch, self.weight)

    def taken(self, rows_U: Tensor, with_state: bool) -> "Part":
        """Return copies on the device of some rows of the host's memory.

        Args:
            rows_U: int64 in the host's memory.
            with_state: Whether to copy their state, too.
        """
        assert self.host is not None
        weight_UH = self.host.brought(self.weight, rows_U)
        if not with_state:
            return Part(weight_UH)
        state = {name: self.host.brought(tensor, rows_U) for name, tensor in self.state.items()}
        return Part(weight_UH, state, None if self.moved is None else self.host.brought(self.moved, rows_U))

    def put_back(self, rows_U: Tensor, copies: "Part") -> None:
        """Write the copies that `taken` has returned into the host's memory."""
        assert self.host is not None
        own, changed = self.tensors(), copies.tensors()
        self.host.put_back([(own[name], tensor) for name, tensor in changed.items()], rows_U)

    def by_rows(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Return views of weight and state whose rows are what a batch touches.

        They are [R, H], for biases [R, 1], and for a weight by columns [H, R].
        """
        if self.by_columns:
            return self.weight.T, {name: tensor.T for name, tensor in self.state.items()}
        if self.weight.dim() == 2:
            return self.weight, self.state
        return self.weight[:, None], {name: tensor[:, None] for name, tensor in self.state.items()}

    def blocks(self, rows: int | None = None, updates: bool = False) -> Iterator[Tensor]:
        """Yield the weight in blocks of rows, where they are computed.

        Args:
            rows: Rows of a block; None: those of `BLOCK_BYTES`.
            updates: Whether each block is changed before the next one.
        """
        weight_RH, _ = self.by_rows()
        rows = rows or block_rows(weight_RH[:1].nbytes)
        with sweep_over([] if self.by_columns else [self.weight], updates, self.host, self.course) as sweep:
            for start in range(0, len(weight_RH), rows):
                stop = min(start + rows, len(weight_RH))
                sweep.at(start, stop)
                yield weight_RH[start:stop] if self.host is None else sweep.rows(start, stop)[0]

    @contextmanager
    def sweep(self, updates: bool) -> Iterator[Sweep]:
        """Give a pass over the rows, which also updates them or only reads the weight."""
        with sweep_over(swept(self, updates), updates, self.host, self.course) as self.near:
            try:
                yield self.near
            finally:
                self.near = None

    def fetch_rows(self, rows_U: Tensor) -> None:
        """Begin to read the rows that a batch touches, int64 [U], ascending, if they are in a file."""
        if not self.by_columns:
            for tensor in [self.weight, *self.state.values()]:
                fetch_rows(tensor, rows_U)

    def unmap(self) -> None:
        """Let the kernel free the memory of rows that are in a file."""
        if not self.by_columns:
            for tensor in [self.weight, *self.state.values()]:
                unmap(tensor)

    def tensors(self) -> dict[str, Tensor]:
        """Return this shard's tensors for a checkpoint, by name."""
        moved = {} if self.moved is None else {"moved": self.moved}
        return {
            "weight": self.weight,
            **{f"state.{name}": tensor for name, tensor in self.state.items()},
            **moved,
        }
