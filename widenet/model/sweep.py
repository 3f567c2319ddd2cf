"""A pass over rows that lie in files or in the host's memory: they come ahead of it and go back behind it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from itertools import chain
from types import TracebackType

from torch import Tensor

from widenet.model.host_memory import Crossing, HostMemory
from widenet.plan.streaming import NUM_WINDOWS, chunk_rows, chunks_ahead, chunks_behind
from widenet.scratch import load, release, scratch_of, store


class Sweep:
    """A pass over the rows of tensors in order, of which the memory that computes holds only some.

    Rows in files come into memory in chunks of equal bytes, by threads, which also write them back: all rows
    are in their file again when the pass ends. Rows in the host's memory come to a
    CUDA device tile by tile, by a stream: one tile is at work, while the next one takes the place of the one
    before. Tensors where they are computed take part without effect. The numbers are the same without any
    of this.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        writes: bool = False,
        host: HostMemory | None = None,
    ) -> None:
        """Begin a pass.

        Args:
            tensors: Tensors of equal numbers of rows.
            writes: Whether every row is written.
            host: The host's memory, if they lie there.
        """
        self._tensors = [
            tensor.detach() for tensor in tensors if host is not None or scratch_of(tensor) is not None
        ]
        self._scratch = scratch_of(self._tensors[0]) if self._tensors and host is None else None
        self._writes, self._host = writes, host
        row_bytes = [tensor[:1].numel() * tensor.element_size() for tensor in self._tensors]
        self._rows, self._ahead, self._behind = 0, NUM_WINDOWS - 1, 0
        if self._scratch is not None:
            self._rows, self._ahead = chunk_rows(row_bytes), chunks_ahead(row_bytes)
            self._behind = chunks_behind(row_bytes)
        self._reading: deque[Sequence[Future[None] | Crossing]] = deque()
        self._storing: deque[Sequence[Future[None]]] = deque()
        self._windows: dict[int, list[Tensor]] = {}
        self._first = self._next = self._at_hand = 0

    @property
    def chunk_rows(self) -> int | None:
        """Number of rows that are read or written together; None if all rows are in memory."""
        return None if self._scratch is None else self._rows

    def at(self, start: int, stop: int) -> None:
        """Wait until the rows [start, stop) are at hand, and let go of all rows before them.

        In the host's memory, rows must be asked for in tiles of equal numbers; the last one may be smaller.
        """
        if self._scratch is None and self._host is None:
            return
        self._rows = self._rows or stop - start
        self._let_go_before(start // self._rows)
        while len(self._storing) > self._behind:
            _wait_for(self._storing.popleft())
        last = -(-len(self._tensors[0]) // self._rows)
        needed = -(-stop // self._rows)
        for chunk in range(self._next, min(needed + self._ahead, last)):
            self._reading.append(self._fetching(chunk))
            self._next = chunk + 1
        while len(self._reading) > max(self._next - needed, 0):
            _wait_for(self._reading.popleft())
            self._at_hand += 1

    def rows(self, start: int, stop: int) -> list[Tensor]:
        """Return rows of the host's memory that `at` has brought to the device, as views of their windows."""
        first = start // self._rows
        place = slice(start - first * self._rows, stop - first * self._rows)
        return [own[place] for own in self._windows[first]]

    def _let_go_before(self, chunk: int) -> None:
        """Begin to let go of all chunks before one."""
        for done in range(self._first, min(chunk, self._next)):
            if self._scratch is not None:
                writes = self._writes and done < self._at_hand  # nobody wrote to what nobody waited for
                self._storing.append(self._submitted(self._scratch.writers, done, store, writes))
            else:
                self._send_back(done)
            self._first = done + 1

    def _fetching(self, chunk: int) -> Sequence[Future[None] | Crossing]:
        if self._scratch is not None:
            return self._submitted(self._scratch.readers, chunk, load)
        assert self._host is not None
        sources = [self._rows_of(chunk, tensor) for tensor in self._tensors]
        self._windows[chunk] = self._host.window(chunk, sources)
        return [self._host.send(zip(self._windows[chunk], sources, strict=True))]

    def _send_back(self, chunk: int) -> None:
        """Copy a tile into the host's memory if it was written; its window is then free."""
        assert self._host is not None
        window = self._windows.pop(chunk)
        if self._writes:
            self._host.send(
                (self._rows_of(chunk, tensor), own) for tensor, own in zip(self._tensors, window, strict=True)
            )

    def _rows_of(self, chunk: int, tensor: Tensor) -> Tensor:
        return tensor[chunk * self._rows : (chunk + 1) * self._rows]

    def _submitted(
        self, threads: Executor, chunk: int, work: Callable[..., None], *options: bool
    ) -> list[Future[None]]:
        """Begin some work on a chunk: of each tensor by itself, so that none depends on what fails."""
        return [threads.submit(work, self._rows_of(chunk, tensor), *options) for tensor in self._tensors]

    def __enter__(self) -> "Sweep":
        if self._host is None:
            for tensor in self._tensors:  # nothing of them may be in the system's cache
                release(tensor)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the rest, whatever failed to be read, and only then raise the first error.

        Rows in memory of their own, which stayed there, would be zeros after a `release`.
        """
        failed = _failures(self._reading)
        self._let_go_before(self._next)
        failed += _failures(self._storing)
        if failed and error is None:
            raise failed[0]


def _wait_for(work: Sequence[Future[None] | Crossing]) -> None:
    """Wait for all of some work, then raise its first error."""
    for error in _failures([work]):
        raise error


def _failures(work: Iterable[Sequence[Future[None] | Crossing]]) -> list[Exception]:
    """Wait for all of some work and return its errors."""
    failed: list[Exception] = []
    for part in chain.from_iterable(work):
        try:
            part.result()
        except Exception as error:
            failed.append(error)
    return failed


def groups(starts: Sequence[int], rows: int | None) -> Iterator[tuple[int, int]]:
    """Yield ranges (first, last) of tiles that are used together: all of them, or about so many rows.

    Args:
        starts: First row of every tile, then the number of rows.
        rows: Number of rows; None: all.
    """
    first = 0
    for last in range(1, len(starts)):
        if last == len(starts) - 1 or (rows is not None and starts[last + 1] - starts[first] > rows):
            yield first, last
            first = last
