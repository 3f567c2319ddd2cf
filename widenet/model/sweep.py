"""A pass over rows that lie in files or in the host's memory: they come ahead of it and go back behind it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Protocol

from torch import Tensor

from widenet.model.file_sweep import Course, FileSweep
from widenet.model.host_memory import HostMemory, HostSweep
from widenet.scratch import scratch_of


class Sweep(Protocol):
    """A pass over the rows of tensors in order, of which the memory that computes holds only some.

    It is a context: at its end, rows that were written are on their way back. The numbers are the same
    without any of this.
    """

    @property
    def chunk_rows(self) -> int | None:
        """Number of rows that are read or written together; None: as many as `at` names."""

    def at(self, start: int, stop: int) -> None:
        """Wait until the rows [start, stop) are at hand, and let go of all rows before them.

        In the host's memory, rows must be asked for in tiles of equal numbers; the last one may be smaller.
        """

    def rows(self, start: int, stop: int) -> list[Tensor]:
        """Return the rows of each tensor that `at` has brought, where they are computed."""

    def __enter__(self) -> "Sweep":
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of all rows; raises CapacityError if a disk fails."""


class _InPlace:
    """A pass over tensors where they are computed: there is nothing to do."""

    chunk_rows = None

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors

    def at(self, start: int, stop: int) -> None:
        """See `Sweep.at`."""

    def rows(self, start: int, stop: int) -> list[Tensor]:
        """See `Sweep.rows`."""
        return [tensor[start:stop] for tensor in self._tensors]

    def __enter__(self) -> "_InPlace":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def sweep_over(
    tensors: Sequence[Tensor],
    writes: bool = False,
    host: HostMemory | None = None,
    course: Course | None = None,
) -> Sweep:
    """Return a pass.

    Args:
        tensors: Tensors of equal numbers of rows.
        writes: Whether every row is written.
        host: The host's memory, if they lie there.
        course: The passes to which it belongs, if others follow it.
    """
    if host is not None:
        return HostSweep(tensors, writes, host)
    in_files = [tensor for tensor in tensors if scratch_of(tensor) is not None]
    if not in_files:
        return _InPlace(tensors)
    return FileSweep(in_files, writes) if course is None else course.sweep(in_files, writes)


class _Part(Protocol):
    weight: Tensor
    state: dict[str, Tensor]
    course: Course | None


def swept(part: _Part, updates: bool) -> list[Tensor]:
    """Return the tensors of a pass over a shard's rows, which updates them or only reads the weight."""
    return [part.weight, *part.state.values()] if updates else [part.weight]


@contextmanager
def in_turn(parts: Iterable[_Part], *updates: bool, begins: bool = False) -> Iterator[None]:
    """Within the block, read rows in files ahead from part to part, and from pass to pass.

    A block within another one over the same parts belongs to it.

    Args:
        parts: Shards of a weight.
        updates: For each pass over all parts, whether it updates the rows; nothing else may.
        begins: Whether to read the first rows now, not when the first pass begins.
    """
    parts = [part for part in parts if scratch_of(part.weight) is not None]
    if any(part.course is not None for part in parts):
        yield
        return
    with Course((swept(part, update), update) for update in updates for part in parts) as course:
        if begins:
            course.begin()
        for part in parts:
            part.course = course
        try:
            yield
        finally:
            for part in parts:
                part.course = None


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
