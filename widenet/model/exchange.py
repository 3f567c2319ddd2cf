"""What a layer may ask of the other shards, wherever they are computed."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from torch import Tensor

T = TypeVar("T")


class Exchange(Protocol):
    """Runs work on the shards at hand and combines what crosses shards. No result depends on who computes which shard."""

    def each(self, work: Callable[[int], T]) -> list[T]:
        """`work(shard)` for every shard held here, in shard order; shards may run side by side."""

    def sum(self, terms: Sequence[Tensor]) -> Tensor:
        """The sum over all shards of one tensor a shard, exact in 64-bit fixed point."""

    def max(self, terms: Sequence[Tensor]) -> Tensor:
        """The elementwise maximum over all shards of one tensor a shard."""

    def gather(self, terms: Sequence[Tensor]) -> list[Tensor]:
        """One tensor for every shard, in shard order."""
