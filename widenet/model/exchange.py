"""What a layer may ask of the other shards, wherever they are computed."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """What has been asked for and is on its way."""

    def result(self) -> T_co:
        """Wait for it."""


class Exchange(Protocol):
    """Runs work on the shards at hand and combines what crosses shards.

    No result depends on who computes which shard.

    All processes must ask for the same, in the same order; what is started travels while its asker goes on.
    Where another process is lost, a person reads what was done (`at`) and what for (`where`, as in 'layer
    "taste"').
    """

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and speaks for all."""

    def each(self, work: Callable[[int], T]) -> list[T]:
        """`work(shard)` for every shard held here, in shard order; shards may run side by side."""

    def at(self, place: str) -> None:
        """Say what is being done from now on: "epoch 2, step 17"."""

    def start_sum(self, *terms: Sequence[Tensor], where: str) -> Pending[list[Tensor]]:
        """Several sums as of `sum`, in one travel. The terms must not change before the result is there."""

    def sum(self, terms: Sequence[Tensor], where: str) -> Tensor:
        """The sum over all shards of one tensor a shard, exact in 64-bit fixed point."""

    def start_blocks(
        self, result: Tensor, edges: Sequence[int], fill: Callable[[int, int], None], inner: int, where: str
    ) -> Pending[Tensor]:
        """The result, [R, C], with all its rows filled: `fill(start, stop)` fills those of a block, from one
        edge to the next.

        Blocks may run side by side. inner: multiplications a number, which tells whether processes divide the
        blocks.
        """

    def gather(self, terms: Sequence[Tensor], where: str) -> list[Tensor]:
        """One tensor of the same shape for every shard, in shard order."""

    def fetch(
        self, shard: int, term: Tensor | None, shape: tuple[int, ...], device: torch.device, where: str
    ) -> Tensor:
        """A shard's float32 tensor of a known shape, from the process that holds it."""

    def start_any(self, questions: Sequence[Callable[[], bool]], where: str) -> Pending[list[bool]]:
        """For each question whether its answer is true in any process, in one travel.

        They are asked at once where the answers must travel, otherwise with the result.
        """

    def collect(self, value: Any, where: str) -> list[Any]:
        """A small plain value of every process, in order. None goes on before all have given theirs."""
