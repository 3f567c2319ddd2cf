"""The exchange of a single process, which holds all shards and works on them in threads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.exchange import Pending
from widenet.kernels.fixed_point import Terms, exact_sum
from widenet.parallel.threads import Workers
from widenet.plan.picture_layers import ROW_NUMBERS, long_rows

T = TypeVar("T")


def in_rows(vector: Tensor, num_shards: int) -> Tensor:
    """Return a vector as rows of neighbours, filled up with zeros so that every shard has as many rows."""
    rows = long_rows(len(vector), num_shards)
    missing = rows * ROW_NUMBERS - len(vector)
    return (pad(vector, (0, missing)) if missing else vector).view(rows, ROW_NUMBERS)


@dataclass(frozen=True)
class Here(Generic[T]):
    """A pending result that needs no other process: computed when asked for."""

    find: Callable[[], T]

    def result(self) -> T:
        """See `kernels.exchange.Pending.result`."""
        return self.find()


class LocalExchange:
    """An exchange that holds every shard.

    Each shard's work runs in one thread, `num_threads` shards at a time. No result depends on that number.
    """

    leads = True

    def __init__(self, num_shards: int, num_threads: int = 1) -> None:
        self.shards = range(num_shards)
        self.workers = Workers(num_threads)

    @property
    def num_threads(self) -> int:
        """See `kernels.exchange.Exchange.num_threads`."""
        return self.workers.num_threads

    def each(self, work: Callable[[int], T]) -> list[T]:
        """See `kernels.exchange.Exchange.each`."""
        return self.workers.run(work, self.shards)

    def at(self, place: str) -> None:
        """See `kernels.exchange.Exchange.at`; does nothing, since no other process can be lost."""

    def start_sum(self, *terms: Terms, where: str) -> Here[list[Tensor]]:
        """See `kernels.exchange.Exchange.start_sum`."""
        sums = [self.sum(of_shards, where) for of_shards in terms]
        return Here(lambda: sums)

    def sum(self, terms: Terms, where: str) -> Tensor:
        """See `kernels.exchange.Exchange.sum`."""
        return exact_sum(terms)

    def sum_by_pieces(self, terms: Sequence[Tensor], where: str) -> list[Tensor]:
        """See `kernels.exchange.Exchange.sum_by_pieces`."""
        count = len(self.shards)
        rows = [in_rows(term, count) for term in terms]
        return self.each(lambda shard: exact_sum([of_term.chunk(count)[shard] for of_term in rows]).flatten())

    @property
    def alone(self) -> "LocalExchange":
        """See `kernels.exchange.Exchange.alone`."""
        return LocalExchange(1)

    def start_blocks(
        self, result: Tensor, edges: Sequence[int], fill: Callable[[int, int], None], inner: int, where: str
    ) -> Here[Tensor]:
        """See `kernels.exchange.Exchange.start_blocks`."""
        self.workers.run(lambda block: fill(edges[block], edges[block + 1]), range(len(edges) - 1))
        return Here(lambda: result)

    def gather(self, terms: Sequence[Tensor], where: str) -> list[Tensor]:
        """See `kernels.exchange.Exchange.gather`."""
        return list(terms)

    def fetch(
        self, shard: int, term: Tensor | None, shape: tuple[int, ...], device: torch.device, where: str
    ) -> Tensor:
        """See `kernels.exchange.Exchange.fetch`."""
        assert term is not None
        return term

    def start_any(self, questions: Sequence[Callable[[], bool]], where: str) -> Pending[list[bool]]:
        """See `kernels.exchange.Exchange.start_any`."""
        return Here(lambda: [ask() for ask in questions])

    def collect(self, value: Any, where: str) -> list[Any]:
        """See `kernels.exchange.Exchange.collect`."""
        return [value]
