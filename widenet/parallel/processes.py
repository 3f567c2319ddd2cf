"""The exchange between several processes: they send the integers that one process would add.

So the results have the same bits for any number of processes.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from widenet.errors import GroupError
from widenet.kernels.exchange import Pending
from widenet.kernels.fixed_point import Terms, common_peaks, exact_sum, fixed_sum, rounded
from widenet.parallel.heartbeat import Heartbeat, line
from widenet.parallel.local import Here, LocalExchange, in_rows
from widenet.parallel.threads import Workers
from widenet.plan.job import check_processes
from widenet.plan.narrow import dividing_pays
from widenet.plan.shards import held, holder, most_held

T = TypeVar("T")


class _CollectiveError(Exception):
    """A collective failed."""


def _run(collective: Callable[..., object], *tensors: Any, **options: Any) -> None:
    """Take part in a collective; raise _CollectiveError for its errors, to tell them from this process's."""
    try:
        collective(*tensors, **options)
    except RuntimeError as error:
        raise _CollectiveError(str(error)) from error


class ProcessExchange:
    """The exchange of a process of the default group, which each process must have joined.

    The processes take the shards in order, each about equally many. A sum of [E, H] sends 8 x E x H bytes a
    process in an all-reduce, whatever the width.

    The line of the process runs all collectives in the order in which they were begun. This is the order of
    the program, so it is the same in every process.

    Raises:
        OptionError: There are fewer shards than processes.
    """

    def __init__(
        self, num_shards: int, device: torch.device, num_threads: int = 1, heartbeat: Heartbeat | None = None
    ) -> None:
        """Take this process's shards.

        Args:
            num_shards: Shards of every wide layer, over all processes.
            device: This process's device.
            num_threads: How many shards the process works on at a time.
            heartbeat: Learns what this process does, and knows which process was lost.
        """
        rank, size = distributed.get_rank(), distributed.get_world_size()
        check_processes(num_shards, size)
        self.num_shards, self.device = num_shards, device
        self.leads = rank == 0
        self.shards = held(num_shards, rank, size)
        self.workers = Workers(num_threads)
        self.heartbeat = heartbeat
        # On CUDA all threads share a stream: the line's work follows what computed its terms, and precedes
        # what uses its results.
        if device.type == "cuda":
            line().submit(torch.cuda.set_device, device)
        self.place = "start"
        self.lost: GroupError | None = None

    @property
    def num_threads(self) -> int:
        """See `kernels.exchange.Exchange.num_threads`."""
        return self.workers.num_threads

    def each(self, work: Callable[[int], T]) -> list[T]:
        """See `kernels.exchange.Exchange.each`."""
        return self.workers.run(work, self.shards)

    def at(self, place: str) -> None:
        """See `kernels.exchange.Exchange.at`."""
        self.place = place
        self._note(place)

    def begin(self, work: Callable[[], T], where: str) -> Future[T]:
        """Queue some work with collectives on the line."""
        return line().submit(self._on_line, work, f"{self.place}, {where}")

    def start_sum(self, *terms: Terms, where: str) -> Future[list[Tensor]]:
        """See `kernels.exchange.Exchange.start_sum`."""

        def summed() -> list[Tensor]:
            num = self.num_shards
            peaks = _reduced([common_peaks(of_shards) for of_shards in terms], distributed.ReduceOp.MAX)
            own = [fixed_sum(of_shards, peak, num) for of_shards, peak in zip(terms, peaks, strict=True)]
            totals = _reduced(own, distributed.ReduceOp.SUM)
            dtypes = [of_shards[0].dtype for of_shards in terms]
            return [
                rounded(total, peak, num, dtype)
                for total, peak, dtype in zip(totals, peaks, dtypes, strict=True)
            ]

        return self.begin(summed, where)

    def sum(self, terms: Terms, where: str) -> Tensor:
        """See `kernels.exchange.Exchange.sum`."""
        return self.start_sum(terms, where=where).result()[0]

    def sum_by_pieces(self, terms: Sequence[Tensor], where: str) -> list[Tensor]:
        """See `kernels.exchange.Exchange.sum_by_pieces`."""

        def summed() -> list[Tensor]:
            rows = [in_rows(term, self.num_shards) for term in terms]
            size = distributed.get_world_size()
            starts = [held(self.num_shards, process, size).start for process in range(size)]
            cuts = [len(rows[0]) * start // self.num_shards for start in starts] + [len(rows[0])]
            total = exact_sum(self._of_all_shards(rows, cuts))
            return [piece.flatten() for piece in total.chunk(len(self.shards))]

        return self.begin(summed, where).result()

    def _of_all_shards(self, terms: Sequence[Tensor], cuts: Sequence[int]) -> Tensor:
        """Return this process's rows of the terms of all shards, [shards, rows, ...], in their order.

        Args:
            terms: One per shard of this process.
            cuts: Process p gets the rows from cuts[p] to cuts[p + 1] - 1.
        """
        rank, size = distributed.get_rank(), distributed.get_world_size()
        sent = torch.cat([term[start:stop] for start, stop in pairwise(cuts) for term in terms])
        own = cuts[rank + 1] - cuts[rank]
        arrived = sent.new_empty(self.num_shards * own, *sent.shape[1:])
        _run(
            distributed.all_to_all_single,
            arrived,
            sent,
            [len(held(self.num_shards, process, size)) * own for process in range(size)],
            [len(terms) * (stop - start) for start, stop in pairwise(cuts)],
        )
        return arrived.view(self.num_shards, own, *sent.shape[1:])

    @property
    def alone(self) -> LocalExchange:
        """See `kernels.exchange.Exchange.alone`."""
        return LocalExchange(1)

    def start_blocks(
        self, result: Tensor, edges: Sequence[int], fill: Callable[[int, int], None], inner: int, where: str
    ) -> Pending[Tensor]:
        """See `kernels.exchange.Exchange.start_blocks`.

        The processes take the blocks in order, each about equally many.
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
        """See `kernels.exchange.Exchange.gather`."""

        def gathered() -> list[Tensor]:
            size = distributed.get_world_size()
            # An all-gather needs equal shapes: a process with fewer shards fills up with copies.
            padding = [terms[0]] * (most_held(self.num_shards, size) - len(terms))
            own = torch.stack([*terms, *padding])
            of_processes = [torch.empty_like(own) for _ in range(size)]
            _run(distributed.all_gather, of_processes, own)
            return [
                term
                for rank, padded in enumerate(of_processes)
                for term in padded[: len(held(self.num_shards, rank, size))]
            ]

        return self.begin(gathered, where).result()

    def fetch(
        self, shard: int, term: Tensor | None, shape: tuple[int, ...], device: torch.device, where: str
    ) -> Tensor:
        """See `kernels.exchange.Exchange.fetch`."""

        def fetched() -> Tensor:
            result = torch.empty(shape, device=device) if term is None else term.contiguous()
            source = holder(self.num_shards, shard, distributed.get_world_size())
            _run(distributed.broadcast, result, src=source)
            return result

        return self.begin(fetched, where).result()

    def start_any(self, questions: Sequence[Callable[[], bool]], where: str) -> Future[list[bool]]:
        """See `kernels.exchange.Exchange.start_any`."""
        own = torch.tensor([int(ask()) for ask in questions], device=self.device)

        def answers() -> list[bool]:
            (largest,) = _reduced([own], distributed.ReduceOp.MAX)
            return [bool(answer) for answer in largest.tolist()]

        return self.begin(answers, where)

    def collect(self, value: Any, where: str) -> list[Any]:
        """See `kernels.exchange.Exchange.collect`."""

        def collected() -> list[Any]:
            values: list[Any] = [None] * distributed.get_world_size()
            _run(distributed.all_gather_object, values, value)
            return values

        return self.begin(collected, where).result()

    def _note(self, doing: str) -> None:
        if self.heartbeat is not None:
            self.heartbeat.doing = doing

    def _on_line(self, work: Callable[[], T], where: str) -> T:
        """Run work with collectives; a failure becomes a GroupError, which all later work raises too."""
        if self.lost is not None:
            raise self.lost
        self._note(where)
        try:
            with torch.no_grad():
                return work()
        except _CollectiveError as error:
            if self.heartbeat is not None and (named := self.heartbeat.verdict()) is not None:
                self.lost = named
                raise named from error
            rank, size = distributed.get_rank(), distributed.get_world_size()
            reason = str(error).strip().split("\n")[0]
            rule = f"another process of the group was lost, or did not answer in time ({reason})"
            self.lost = GroupError(rule, place=f"process {rank} of {size}, {where}")
            raise self.lost from error


def _gather_rows(result: Tensor, cuts: Sequence[int]) -> Tensor:
    """Fill a tensor whose rows from cuts[p] to cuts[p + 1] process p has computed; return it."""
    parts = [result[start:stop] for start, stop in pairwise(cuts)]
    own = parts[distributed.get_rank()]
    padded = result.new_zeros(max(len(part) for part in parts), *result.shape[1:])
    padded[: len(own)] = own
    of_processes = [torch.empty_like(padded) for _ in parts]
    _run(distributed.all_gather, of_processes, padded)
    for part, rows in zip(parts, of_processes, strict=True):
        part.copy_(rows[: len(part)])
    return result


def _reduced(tensors: Sequence[Tensor], operation: distributed.ReduceOp.RedOpType) -> list[Tensor]:
    """All-reduce tensors of one dtype in one collective."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    _run(distributed.all_reduce, flat, operation)
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]
