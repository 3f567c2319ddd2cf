"""All shards in one process, side by side in threads."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from widenet.kernels import exact_sum
from widenet.parallel.threads import Workers

T = TypeVar("T")


class LocalExchange:
    """Holds every shard. Each shard's work runs in one thread, `num_threads` shards at a time; no result depends on that number."""

    leads = True

    def __init__(self, num_shards: int, num_threads: int = 1) -> None:
        self.shards = range(num_shards)
        self.workers = Workers(num_threads)

    def each(self, work: Callable[[int], T]) -> list[T]:
        """See `model.exchange.Exchange.each`."""
        return self.workers.run(work, self.shards)

    def sum(self, terms: Sequence[Tensor]) -> Tensor:
        """See `model.exchange.Exchange.sum`."""
        return exact_sum(terms)

    def max(self, terms: Sequence[Tensor]) -> Tensor:
        """See `model.exchange.Exchange.max`."""
        return torch.stack(list(terms)).amax(dim=0)

    def gather(self, terms: Sequence[Tensor]) -> list[Tensor]:
        """See `model.exchange.Exchange.gather`."""
        return list(terms)

    def fetch(self, shard: int, term: Tensor | None, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """See `model.exchange.Exchange.fetch`."""
        del shard, shape, device
        assert term is not None
        return term

    def any(self, flag: bool) -> bool:
        """See `model.exchange.Exchange.any`."""
        return flag

    def collect(self, value: Any) -> list[Any]:
        """See `model.exchange.Exchange.collect`."""
        return [value]
