"""A shard of a wide weight in bfloat16, of which a step works on float32 copies of some rows at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from widenet import randomness
from widenet.kernels import gather_sum, roomy
from widenet.kernels.stochastic import packed, to_bfloat16, unpacked
from widenet.model.part import Part
from widenet.model.rule import Rule
from widenet.plan.rounded import blocks_of_row
from widenet.plan.shards import Shards
from widenet.plan.streaming import block_rows
from widenet.sparse import SparseBatch
from widenet.spec.training import TrainingSpec

_LOST, _EXPONENTS = "lost", " exponents"
"""Names in the state: what rounding has lost, and the end of the name of exponents of numbers in 8 bits."""

Rows = slice | Tensor
"""Some rows: a range, or their numbers, int64, without repeats."""


@dataclass(frozen=True)
class Rounding:
    """How the rows of a shard are rounded.

    Attributes:
        training: The training document.
        weight: Name of the weight.
        shards: Its shards.
        shard: The shard.
    """

    training: TrainingSpec
    weight: str
    shards: Shards
    shard: int

    def key(self, step: int, state: str = "") -> int:
        """Return the key of a step for the weight, or for a tensor of its state."""
        return _key(self.training.seed, f"rounding/{self.weight}/{state}", step)

    def units(self, rows: Rows) -> Tensor:
        """Return the units of some rows, int64."""
        units = self.shards.units(self.shard)
        if isinstance(rows, slice):
            chosen = units[rows]
            return torch.arange(chosen.start, chosen.stop, chosen.step)
        return units.start + rows * units.step


class RoundedPart(Part):
    """One shard of a wide weight in bfloat16.

    Its rows are read as float32 copies, which hold them exactly. After a step they are rounded again: by
    chance, or to the nearest with what is lost kept for the next step.

    Attributes:
        weight: bfloat16 [R, H].
        state: In training, the optimizer's tensors, float32 or 8 bits with their exponents; beside them, what
            rounding has lost, bfloat16 [R, H].
        rounding: How rows are rounded.
    """

    makes_copies: ClassVar[bool] = True

    def __init__(self, weight: Tensor, rounding: Rounding) -> None:
        """Take a weight in bfloat16, or round one in float32 to the nearest."""
        if weight.dtype != torch.bfloat16:
            weight = roomy(weight.shape, torch.bfloat16).copy_(weight)
        super().__init__(weight)
        self.rounding = rounding
        self._names: list[str] = []

    @property
    def is_compensated(self) -> bool:
        """Whether what rounding loses is kept."""
        return _LOST in self.state

    def prepare(self, rule: Rule, remembers: bool) -> None:
        """See `Part.prepare`."""
        training, shape = self.rounding.training, self.weight.shape
        self._names = [*rule.state_for(torch.empty(0))]
        for name in self._names:
            if training.state_precision == "float8":
                self.state[name] = roomy(shape, torch.uint8)
                self.state[name + _EXPONENTS] = roomy((shape[0], blocks_of_row(shape[1])), torch.uint8)
            else:
                self.state[name] = roomy(shape)
        if training.weight_rounding == "compensated":
            self.state[_LOST] = roomy(shape, torch.bfloat16)
        if remembers:
            self.moved = roomy(shape[:1], torch.int32)

    def rows(self, start: int, stop: int) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the rows [start, stop) in float32, and no state."""
        return self.weight[start:stop].float(), {}

    @contextmanager
    def opened(self, start: int, stop: int, step: int) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """See `Part.opened`."""
        with self._copied(slice(start, stop), step) as copies:
            yield copies.weight, copies.state

    @contextmanager
    def at_hand(self, rows_U: Tensor, step: int) -> Iterator[tuple[Part, Tensor]]:
        """See `Part.at_hand`."""
        with self._copied(rows_U, step) as copies:
            yield copies, torch.arange(len(rows_U))

    @contextmanager
    def _copied(self, rows: Rows, step: int) -> Iterator[Part]:
        """Give float32 copies of some rows and their state; after the block, round them again."""
        moved = None if self.moved is None else self.moved[rows]
        weight = self.weight[rows].float()
        if self.is_compensated:
            weight += self.state[_LOST][rows]
        copies = Part(weight, {name: self._state_of(name, rows) for name in self._names}, moved)
        yield copies
        units = self.rounding.units(rows)
        if self.is_compensated:
            self.weight[rows] = nearest = copies.weight.to(torch.bfloat16)
            self.state[_LOST][rows] = copies.weight.sub_(nearest).to(torch.bfloat16)
        else:
            self.weight[rows] = to_bfloat16(copies.weight, self.rounding.key(step), units)
        for name, tensor in copies.state.items():
            self._keep_state(name, rows, tensor, step, units)
        if self.moved is not None and copies.moved is not None:
            self.moved[rows] = copies.moved

    def _state_of(self, name: str, rows: Rows) -> Tensor:
        """Return float32 copies of the state of some rows."""
        if self.state[name].dtype == torch.float32:
            return self.state[name][rows]
        return unpacked(self.state[name][rows], self.state[name + _EXPONENTS][rows], _is_square(name))

    def _keep_state(self, name: str, rows: Rows, tensor: Tensor, step: int, units: Tensor) -> None:
        if self.state[name].dtype == torch.float32:
            if not isinstance(rows, slice):  # a range is no copy
                self.state[name][rows] = tensor
            return
        codes, exponents = packed(tensor, _is_square(name), self.rounding.key(step, name), units)
        self.state[name][rows], self.state[name + _EXPONENTS][rows] = codes, exponents

    def blocks(self, rows: int | None = None, updates: bool = False) -> Iterator[Tensor]:
        """Yield the rows in float32, in blocks."""
        assert not updates, "what moves all rows outside a step does not go with bfloat16"
        step = rows or block_rows(4 * self.weight.shape[1])
        for start in range(0, len(self.weight), step):
            yield self.rows(start, start + step)[0]

    def gathered(self, batch: SparseBatch) -> Tensor:
        """See `Part.gathered`; only rows that the batch has become float32."""
        features_U, indices_Z = torch.unique(batch.indices, return_inverse=True)
        rows_UH = self.weight.index_select(0, features_U).float()
        return gather_sum(SparseBatch(batch.indptr, indices_Z, batch.values), rows_UH)


def _is_square(name: str) -> bool:
    """Return whether no number of a state is negative; see `OfOptimizers.state`."""
    return "square" in name


@lru_cache(maxsize=64)
def _key(seed: int, purpose: str, step: int) -> int:
    return randomness.key(seed, purpose, step)
