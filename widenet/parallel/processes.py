"""Shards over several processes: the same integers travel that one process adds, and so the bits are the
same.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from widenet.errors import GroupError
from widenet.kernels.fixed_point import fixed_sum, from_fixed, peaks_of, scales_for
from widenet.model.exchange import Pending
from widenet.parallel.heartbeat import Heartbeat
from widenet.parallel.line import Line
from widenet.parallel.local import Here
from widenet.parallel.threads import Workers
from widenet.plan.job import check_processes
from widenet.plan.narrow import dividing_pays
from widenet.plan.shards import held, holder, most_held

T = TypeVar("T")


class _MissedError(Exception):
    """A collective that did not come to its end."""


def _travel(collective: Callable[..., object], *tensors: Any, **options: Any) -> None:
    """Take part in a collective; what goes wrong in it is told from what goes wrong in this process alone."""
    try:
        collective(*tensors, **options)
    except RuntimeError as error:
        raise _MissedError(str(error)) from error


class ProcessExchange:
    """Holds the shards of one process of the default group, which each process must have joined.

    The processes take the shards in order, as equally many each as possible; OptionError where there are
    fewer shards than processes. Bytes sent a process and sum of [E, H]: 8 x E x H in an all-reduce, whatever
    the width.

    Whatever takes the other processes is done by one thread, the line, in the order in which it was begun
    here: the order of the program, and so the same in every process.
    """

    def __init__(
        self, num_shards: int, device: torch.device, num_threads: int = 1, heartbeat: Heartbeat | None = None
    ) -> None:
        """heartbeat: is told what is being done, and ends what waits for a lost process."""
        rank, size = distributed.get_rank(), distributed.get_world_size()
        check_processes(num_shards, size)
        self.num_shards, self.device = num_shards, device
        self.leads = rank == 0
        self.shards = held(num_shards, rank, size)
        self.workers = Workers(num_threads)
        self.line = Line(partial(_open_line, device))
        self.heartbeat = heartbeat
        if heartbeat is not None:
            heartbeat.guard(self.line)
        self.place = "start"
        self.lost: GroupError | None = None

    def each(self, work: Callable[[int], T]) -> list[T]:
        """See `model.exchange.Exchange.each`."""
        return self.workers.run(work, self.shards)

    def at(self, place: str) -> None:
        """See `model.exchange.Exchange.at`."""
        self.place = place
        self._tell(place)

    def begin(self, work: Callable[[], T], where: str) -> Future[T]:
        """Give the line some work that takes the other processes."""
        return self.line.submit(self._together, work, f"{self.place}, {where}")

    def start_sum(self, *terms: Sequence[Tensor], where: str) -> Future[list[Tensor]]:
        """See `model.exchange.Exchange.start_sum`."""

        def summed() -> list[Tensor]:
            peaks = _reduced(
                [torch.stack([peaks_of(term) for term in each]).amax(dim=0) for each in terms],
                distributed.ReduceOp.MAX,
            )
            scales = [scales_for(peak, self.num_shards) for peak in peaks]
            totals = _reduced(
                [fixed_sum(each, scale) for each, scale in zip(terms, scales, strict=True)],
                distributed.ReduceOp.SUM,
            )
            dtypes = [each[0].dtype for each in terms]
            return [from_fixed(*one) for one in zip(totals, scales, peaks, dtypes, strict=True)]

        return self.begin(summed, where)

    def sum(self, terms: Sequence[Tensor], where: str) -> Tensor:
        """See `model.exchange.Exchange.sum`."""
        return self.start_sum(terms, where=where).result()[0]

    def start_blocks(
        self, result: Tensor, edges: Sequence[int], fill: Callable[[int, int], None], inner: int, where: str
    ) -> Pending[Tensor]:
        """See `model.exchange.Exchange.start_blocks`.

        The processes take the blocks in order, as equally many each as can be.
        """
        count, rank, size = len(edges) - 1, distributed.get_rank(), distributed.get_world_size()
        divided = count > 1 and dividing_pays(inner, size, self.device.type)
        cuts = [count * process // size for process in range(size + 1)]
        own = range(cuts[rank], cuts[rank + 1]) if divided else range(count)
        self.workers.run(lambda block: fill(edges[block], edges[block + 1]), own)
        if divided:
            return self.begin(lambda: _gather_rows(result, [edges[cut] for cut in cuts]), where)
        return Here(lambda: result)

    def gather(self, terms: Sequence[Tensor], where: str) -> list[Tensor]:
        """See `model.exchange.Exchange.gather`."""

        def gathered() -> list[Tensor]:
            size = distributed.get_world_size()
            most = most_held(self.num_shards, size)
            own = torch.stack(
                [*terms, *[terms[0]] * (most - len(terms))]
            )  # all give equally many, though some hold fewer shards
            found = [torch.empty_like(own) for _ in range(size)]
            _travel(distributed.all_gather, found, own)
            return [
                term
                for process, given in enumerate(found)
                for term in given[: len(held(self.num_shards, process, size))]
            ]

        return self.begin(gathered, where).result()

    def fetch(
        self, shard: int, term: Tensor | None, shape: tuple[int, ...], device: torch.device, where: str
    ) -> Tensor:
        """See `model.exchange.Exchange.fetch`."""

        def fetched() -> Tensor:
            found = torch.empty(shape, device=device) if term is None else term.contiguous()
            _travel(
                distributed.broadcast, found, src=holder(self.num_shards, shard, distributed.get_world_size())
            )
            return found

        return self.begin(fetched, where).result()

    def start_any(self, questions: Sequence[Callable[[], bool]], where: str) -> Future[list[bool]]:
        """See `model.exchange.Exchange.start_any`."""
        own = torch.tensor([int(ask()) for ask in questions], device=self.device)

        def found() -> list[bool]:
            (largest,) = _reduced([own], distributed.ReduceOp.MAX)
            return [bool(answer) for answer in largest.tolist()]

        return self.begin(found, where)

    def collect(self, value: Any, where: str) -> list[Any]:
        """See `model.exchange.Exchange.collect`."""

        def collected() -> list[Any]:
            found: list[Any] = [None] * distributed.get_world_size()
            _travel(distributed.all_gather_object, found, value)
            return found

        return self.begin(collected, where).result()

    def _tell(self, doing: str) -> None:
        if self.heartbeat is not None:
            self.heartbeat.doing = doing

    def _together(self, work: Callable[[], T], where: str) -> T:
        """What fails where every process takes part becomes one sentence; what was to follow fails with
        it.
        """
        if self.lost is not None:
            raise self.lost
        self._tell(where)
        try:
            with torch.no_grad():
                return work()
        except _MissedError as error:
            if self.heartbeat is not None and (named := self.heartbeat.verdict()) is not None:
                self.lost = named
                raise named from error
            rank, size = distributed.get_rank(), distributed.get_world_size()
            reason = str(error).strip().split("\n")[0]
            lost = (
                f"process {rank} of {size}, {where}: another process of the group was lost, or did not answer"
                " in time"
            )
            self.lost = GroupError(f"{lost} ({reason}). Start again; a training goes on with --resume.")
            raise self.lost from error


def _open_line(device: torch.device) -> None:
    torch.set_num_threads(1)
    # On CUDA the line queues its work on the stream that all threads share: behind what made its terms,
    # before what takes its results.
    if device.type == "cuda":
        torch.cuda.set_device(device)


def _gather_rows(result: Tensor, cuts: Sequence[int]) -> Tensor:
    """The same tensor, of which each process had filled the rows from its cut to the next."""
    parts = [result[start:stop] for start, stop in pairwise(cuts)]
    mine = parts[distributed.get_rank()]
    own = result.new_zeros(max(len(part) for part in parts), *result.shape[1:])
    own[: len(mine)] = mine
    found = [torch.empty_like(own) for _ in parts]
    _travel(distributed.all_gather, found, own)
    for part, rows in zip(parts, found, strict=True):
        part.copy_(rows[: len(part)])
    return result


def _reduced(tensors: Sequence[Tensor], operation: distributed.ReduceOp.RedOpType) -> list[Tensor]:
    """Tensors of one type, each combined with those of the other processes, in one travel."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    _travel(distributed.all_reduce, flat, operation)
    return [
        part.view_as(tensor)
        for part, tensor in zip(
            torch.split(flat, [tensor.numel() for tensor in tensors]), tensors, strict=True
        )
    ]
