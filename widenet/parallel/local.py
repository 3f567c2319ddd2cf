"""All shards in one process, side by side in threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from widenet.kernels import exact_sum

T = TypeVar("T")


class LocalExchange:
    """Holds every shard. Each shard's work runs in one thread, `num_threads` shards at a time; no result depends on that number."""

    def __init__(self, num_shards: int, num_threads: int = 1) -> None:
        self.num_shards = num_shards
        self.pool = ThreadPoolExecutor(num_threads, thread_name_prefix="shard") if num_threads > 1 else None

    def each(self, work: Callable[[int], T]) -> list[T]:
        """See `model.exchange.Exchange.each`."""
        if self.pool is None:
            return [work(shard) for shard in range(self.num_shards)]
        with_gradients = torch.is_grad_enabled()

        def run(shard: int) -> T:
            with torch.set_grad_enabled(with_gradients):
                return work(shard)

        return list(self.pool.map(run, range(self.num_shards)))

    def sum(self, terms: Sequence[Tensor]) -> Tensor:
        """See `model.exchange.Exchange.sum`."""
        return exact_sum(terms)

    def max(self, terms: Sequence[Tensor]) -> Tensor:
        """See `model.exchange.Exchange.max`."""
        return torch.stack(list(terms)).amax(dim=0)

    def gather(self, terms: Sequence[Tensor]) -> list[Tensor]:
        """See `model.exchange.Exchange.gather`."""
        return list(terms)
