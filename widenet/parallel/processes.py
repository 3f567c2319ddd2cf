"""Shards over several processes: the same integers travel that one process adds, and so the bits are the same."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from widenet.errors import GroupError, OptionError
from widenet.kernels.fixed_point import from_fixed, peaks_of, scales_for, to_fixed
from widenet.parallel.threads import Workers

T = TypeVar("T")


class ProcessExchange:
    """Holds the shards of one process of the default group, which each process must have joined.

    The processes take the shards in order, equally many each; raises OptionError where that is impossible.
    Bytes sent a process and sum of [E, H]: 8 x E x H in an all-reduce, whatever the width.
    """

    def __init__(self, num_shards: int, device: torch.device, num_threads: int = 1) -> None:
        rank, size = distributed.get_rank(), distributed.get_world_size()
        if num_shards % size:
            divisors = ", ".join(str(number) for number in range(1, num_shards + 1) if num_shards % number == 0)
            raise OptionError(f"the number of processes must divide the {num_shards} shards; got {size}. Use one of {divisors}.")
        self.num_shards, self.device = num_shards, device
        self.leads = rank == 0
        self.shards = range(num_shards * rank // size, num_shards * (rank + 1) // size)
        self.workers = Workers(num_threads)
        self.place = "start"

    def each(self, work: Callable[[int], T]) -> list[T]:
        """See `model.exchange.Exchange.each`."""
        return self.workers.run(work, self.shards)

    def at(self, place: str) -> None:
        """See `model.exchange.Exchange.at`."""
        self.place = place

    def sum(self, terms: Sequence[Tensor], where: str) -> Tensor:
        """See `model.exchange.Exchange.sum`."""
        peaks = torch.stack([peaks_of(term) for term in terms]).amax(dim=0)
        with self._together(where):
            distributed.all_reduce(peaks, distributed.ReduceOp.MAX)
        scales = scales_for(peaks, self.num_shards)
        total = to_fixed(terms[0], scales)
        for term in terms[1:]:
            total += to_fixed(term, scales)
        with self._together(where):
            distributed.all_reduce(total)
        return from_fixed(total, scales, peaks, terms[0].dtype)

    def max(self, terms: Sequence[Tensor], where: str) -> Tensor:
        """See `model.exchange.Exchange.max`."""
        own = torch.stack(list(terms)).amax(dim=0)
        largest = torch.stack([own.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf), own.isnan().to(own.dtype)])
        with self._together(where):
            distributed.all_reduce(largest, distributed.ReduceOp.MAX)  # of NaN and a number it would keep either
        return largest[0].masked_fill(largest[1] > 0, torch.nan)

    def gather(self, terms: Sequence[Tensor], where: str) -> list[Tensor]:
        """See `model.exchange.Exchange.gather`."""
        own = torch.stack(list(terms)).contiguous()
        found = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
        with self._together(where):
            distributed.all_gather(found, own)
        return [term for process in found for term in process]

    def fetch(self, shard: int, term: Tensor | None, shape: tuple[int, ...], device: torch.device, where: str) -> Tensor:
        """See `model.exchange.Exchange.fetch`."""
        found = torch.empty(shape, device=device) if term is None else term.contiguous()
        with self._together(where):
            distributed.broadcast(found, src=shard * distributed.get_world_size() // self.num_shards)
        return found

    def any(self, flag: bool, where: str) -> bool:
        """See `model.exchange.Exchange.any`."""
        raised = torch.tensor([int(flag)], device=self.device)
        with self._together(where):
            distributed.all_reduce(raised, distributed.ReduceOp.MAX)
        return bool(raised)

    def collect(self, value: Any, where: str) -> list[Any]:
        """See `model.exchange.Exchange.collect`."""
        found: list[Any] = [None] * distributed.get_world_size()
        with self._together(where):
            distributed.all_gather_object(found, value)
        return found

    @contextmanager
    def _together(self, where: str) -> Iterator[None]:
        """What fails within, where every process takes part, becomes one sentence."""
        try:
            yield
        except RuntimeError as error:
            rank, size = distributed.get_rank(), distributed.get_world_size()
            reason = str(error).strip().split("\n")[0]
            lost = f"process {rank} of {size}, {self.place}, {where}: another process of the group was lost, or did not answer in time"
            raise GroupError(f"{lost} ({reason}). Start again; a training goes on with --resume.") from error
