"""A pass over rows that lie in files: threads read ahead of it and write behind it."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType

from torch import Tensor

from widenet.plan.streaming import CHUNK_BYTES, CHUNKS_AHEAD
from widenet.scratch import MOST_RELEASING, Scratch, fetch, release, scratch_of


class Sweep:
    """A pass over the rows of tensors in order, of which memory holds only some; for tensors in files.

    Tensors in memory take part without effect. The numbers are the same without any of this, only later.
    """

    def __init__(self, tensors: Iterable[Tensor], writes: bool = False) -> None:
        """Begin a pass.

        Args:
            tensors: Tensors of equal numbers of rows.
            writes: Whether every row is written.
        """
        self._scratch: Scratch | None = None
        self._tensors: list[Tensor] = []
        for tensor in tensors:
            scratch = scratch_of(tensor)
            if scratch is not None:
                self._scratch = scratch
                self._tensors.append(tensor.detach())
        self._writes = writes
        row_bytes = sum(tensor[0].numel() * tensor.element_size() for tensor in self._tensors)
        self._rows = max(1, CHUNK_BYTES // max(row_bytes, 1))
        self._reading: deque[Future[None]] = deque()
        self._first = self._next = 0

    @property
    def chunk_rows(self) -> int | None:
        """Number of rows that are read or written together; None if all rows are in memory."""
        return None if self._scratch is None else self._rows

    def at(self, start: int, stop: int) -> None:
        """Wait until the rows [start, stop) are in memory, and let go of all rows before them."""
        if self._scratch is None:
            return
        self._release_before(start // self._rows)
        last = -(-len(self._tensors[0]) // self._rows)
        needed = -(-stop // self._rows)
        for chunk in range(self._next, min(needed + CHUNKS_AHEAD, last)):
            self._reading.append(self._scratch.readers.submit(self._fetch, chunk))
            self._next = chunk + 1
        while len(self._reading) > max(self._next - needed, 0):
            self._reading.popleft().result()
        self._scratch.wait(MOST_RELEASING)

    def _release_before(self, chunk: int) -> None:
        assert self._scratch is not None
        for done in range(self._first, min(chunk, self._next)):
            self._scratch.releasing.append(self._scratch.writers.submit(self._release, done))
            self._first = done + 1

    def _fetch(self, chunk: int) -> None:
        for tensor in self._tensors:
            fetch(tensor[chunk * self._rows : (chunk + 1) * self._rows], self._writes)

    def _release(self, chunk: int) -> None:
        for tensor in self._tensors:
            release(tensor[chunk * self._rows : (chunk + 1) * self._rows])

    def __enter__(self) -> "Sweep":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the rest."""
        while self._reading:
            self._reading.popleft().result()
        if self._scratch is not None:
            self._release_before(self._next)


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
