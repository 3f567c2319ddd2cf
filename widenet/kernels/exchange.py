"""The interface between shards: sums and other results over all shards, wherever they are computed."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from widenet.kernels.fixed_point import Terms

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """A result that is not there yet."""

    def result(self) -> T_co:
        """Wait for the result and return it."""


class Exchange(Protocol):
    """Runs work on the shards of this process and combines results across shards.

    No result depends on which process holds which shard. All processes must make the same calls in the same
    order. Methods that begin with `start` return at once, and the exchange continues in the background. If a
    process is lost, the error says what was being done (`at`) and for which layer (`where`, such as 'layer
    "taste"').
    """

    @property
    def leads(self) -> bool:
        """Whether this process writes files and messages for its group."""

    @property
    def num_threads(self) -> int:
        """How many shards this process works on at a time."""

    def each(self, work: Callable[[int], T]) -> list[T]:
        """Return `work(shard)` for every shard of this process, in order; shards may run in parallel."""

    def at(self, place: str) -> None:
        """Note what is done from now on, for messages: "epoch 2, step 17"."""

    def start_sum(self, *terms: Terms, where: str) -> Pending[list[Tensor]]:
        """Start several sums at once; see `sum`. The terms must not change before the result is there."""

    def sum(self, terms: Terms, where: str) -> Tensor:
        """Return the sum over all shards of one tensor per shard, exact in 64-bit fixed point."""

    def sum_by_pieces(self, terms: Sequence[Tensor], where: str) -> list[Tensor]:
        """Return the pieces, for each shard of this process, of the exact sum of one long vector per shard.

        The sum is cut into a piece for each shard, in order, each of as many numbers: see
        `plan.by_examples.long_rows`. Zeros fill up the last ones.
        """

    @property
    def alone(self) -> "Exchange":
        """An exchange of one shard, which computes in the calling thread."""

    def start_blocks(
        self, result: Tensor, edges: Sequence[int], fill: Callable[[int, int], None], inner: int, where: str
    ) -> Pending[Tensor]:
        """Fill the rows of a result, block by block; blocks may run in parallel.

        Args:
            result: [R, C], out.
            edges: First row of each block, then R.
            fill: Fills the rows start to stop - 1.
            inner: Multiplications for each number; decides whether processes divide the blocks.
            where: See the class.
        """

    def gather(self, terms: Sequence[Tensor], where: str) -> list[Tensor]:
        """Return the tensors of all shards, one per shard and of equal shape, in order."""

    def fetch(
        self, shard: int, term: Tensor | None, shape: tuple[int, ...], device: torch.device, where: str
    ) -> Tensor:
        """Return a shard's float32 tensor from its process; `term` is the tensor there, else None."""

    def start_any(self, questions: Sequence[Callable[[], bool]], where: str) -> Pending[list[bool]]:
        """Ask each question in all processes; an answer is true if it is true in any of them.

        With several processes the questions are asked at once, otherwise when the result is read.
        """

    def collect(self, value: Any, where: str) -> list[Any]:
        """Return a small plain value of every process, in order; waits for all processes."""
