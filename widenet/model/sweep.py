"""Passes over rows that lie in files or in the host's memory.

The rows come ahead of a pass and go back behind it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Protocol

from torch import Tensor

from widenet.kernels.scratch import load, release, scratch_of, store
from widenet.model.host_memory import HostMemory, HostSweep
from widenet.plan.streaming import around_bytes, chunk_rows


class Course:
    """Passes over tensors in files that follow each other, in one thread or in several at the same time.

    For each pass that is under way, memory holds the rows at work, and around them rows that were read ahead
    or that are not written yet. As soon as a pass has begun to read its last rows, those of a pass that
    comes are read, so that the disk does not wait for the work between two passes.

    Attributes:
        held: Bytes of rows in memory or on their way, in either direction.
    """

    def __init__(self, coming: Iterable[tuple[Sequence[Tensor], bool]] = ()) -> None:
        """Prepare passes.

        Args:
            coming: The tensors of each pass and whether it writes their rows, in the order of the passes.
                Nothing but these passes may write to the tensors.
        """
        self._coming = [FileSweep(tensors, writes, self) for tensors, writes in coming]
        self._ahead: list[FileSweep] = []
        self._open: list[FileSweep] = []
        self._ended: list[FileSweep] = []
        self._storing: deque[Future[None]] = deque()
        self._lock = Lock()
        self.held = self._limit = self._threads = 0

    def begin(self) -> None:
        """Begin to read the first rows of the first pass, before anybody waits for them."""
        with self._lock:
            for first in self._coming[:1]:
                self._threads, self._limit = 1, first.room
                self._ahead.append(self._start(first))
        self._read_on()

    def sweep(self, tensors: Sequence[Tensor], writes: bool) -> "FileSweep":
        """Return a pass over some tensors, whose first rows may be in memory already."""
        with self._lock:
            prepared = [*self._ahead, *self._coming]
            found = next((sweep for sweep in prepared if sweep.is_over(tensors, writes)), None)
        return found or FileSweep(tensors, writes, self)

    def open(self, sweep: "FileSweep") -> None:
        """Let a pass begin, once other passes have given back all rows of its tensors."""
        for other in [*self._ahead]:
            if other is not sweep and other.shares(sweep):
                _raise_first(other.end())
        while not self._is_free(sweep) and self._wait_for_oldest():
            pass
        with self._lock:
            if sweep in self._ahead:
                self._ahead.remove(sweep)
            else:
                self._start(sweep)
            self._open.append(sweep)
            self._threads = max(self._threads, len(self._open))

    def read(self, sweep: "FileSweep", requests: int, num_bytes: int) -> None:
        """Begin to read the first rows of a pass, and as many more as there is room for.

        Args:
            sweep: The pass, which is open.
            requests: Number of requests that the rows take.
            num_bytes: Memory of a pass.

        Raises:
            CapacityError: The disk fails.
        """
        with self._lock:
            self._limit = max(self._limit, num_bytes)
            given_back = []
            while self._storing and self._storing[0].done():
                given_back.append(self._storing.popleft())
        _raise_first(_failures(given_back))
        self._read_on()
        while sweep.begun < requests:
            if not self._wait_for_oldest():  # other passes have taken the room
                self._begin(sweep, requests)
        self._follow()

    def let_go(self, sweep: "FileSweep", rows: Tensor, writes: bool) -> None:
        """Begin to give back the memory of rows that were read, and to read others in their place.

        Args:
            sweep: Their pass.
            rows: The rows.
            writes: Whether they changed and must be written.
        """
        done: Future[None] = Future()
        self._storing.append(done)

        def given_back(error: Exception | None) -> None:
            with self._lock:
                sweep.held -= rows.nbytes
                self.held -= rows.nbytes
            try:
                self._read_on()
            except Exception as failed:
                error = error or failed
            _settle(done, error)

        store(rows, writes, given_back)

    def end(self, sweep: "FileSweep") -> None:
        """Begin to read no more rows of a pass."""
        with self._lock:
            for sweeps in (self._open, self._ahead):
                if sweep in sweeps:
                    sweeps.remove(sweep)
            self._ended = [each for each in [*self._ended, sweep] if each.held]

    def close(self) -> list[Exception]:
        """Wait until all rows are in their files again; return what has failed."""
        failed: list[Exception] = []
        for sweep in [*self._open, *self._ahead]:
            failed += sweep.end()
        while self._storing:
            failed += _failures([self._storing.popleft()])
        return failed

    def __enter__(self) -> "Course":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for all rows, whatever failed, and only then raise the first error.

        Rows in memory of their own, which stayed there, would be zeros after a `release`.
        """
        failed = self.close()
        if error is None:
            _raise_first(failed)

    def _follow(self) -> None:
        """Begin to read rows of the next pass if one that is under way has no more to read."""
        with self._lock:
            ending = sum(not sweep.has_more for sweep in self._open)
            if len(self._ahead) < ending and self._coming and self._is_free(self._coming[0]):
                self._ahead.append(self._start(self._coming[0]))
        self._read_on()

    def _start(self, sweep: "FileSweep") -> "FileSweep":
        """Take a pass from those that come; nothing of its rows may be in the system's cache."""
        if sweep in self._coming:
            self._coming.remove(sweep)
        for tensor in sweep.tensors:
            release(tensor)
        return sweep

    def _is_free(self, sweep: "FileSweep") -> bool:
        """Return whether no other pass has rows of a pass's tensors in memory."""
        others = [*self._open, *self._ahead, *(each for each in self._ended if each.held)]
        return not any(each is not sweep and each.shares(sweep) for each in others)

    def _read_on(self) -> None:
        """Begin to read what there is room for."""
        for request in self._requests():
            request.begin()

    def _requests(self) -> "list[Request]":
        """Take the requests that there is room for, of the passes under way first."""
        taken = []
        with self._lock:
            for sweep in [*self._open, *self._ahead]:
                while sweep.has_more and self._has_room(sweep):
                    taken.append(self._taken(sweep))
        return taken

    def _taken(self, sweep: "FileSweep") -> "Request":
        request = sweep.take()
        self.held += request.rows.nbytes
        return request

    def _begin(self, sweep: "FileSweep", requests: int) -> None:
        while sweep.begun < requests:
            with self._lock:
                request = self._taken(sweep)
            request.begin()

    def _has_room(self, sweep: "FileSweep") -> bool:
        size = sweep.next_rows().nbytes
        return sweep.held + size <= self._limit and self.held + size <= self._limit * self._threads

    def _wait_for_oldest(self) -> bool:
        """Wait until the rows that were let go of first are given back; return whether there were any."""
        with self._lock:
            oldest = self._storing[0] if self._storing else None
        if oldest is None:
            return False
        try:
            oldest.result()
        finally:
            with self._lock:
                if self._storing and self._storing[0] is oldest:
                    self._storing.popleft()
        return True


@dataclass(frozen=True)
class Request:
    """Rows of a tensor that are to be read.

    Attributes:
        rows: The rows.
        done: Has a result when they are in memory.
    """

    rows: Tensor
    done: Future[None] = field(default_factory=Future)

    def begin(self) -> None:
        """Begin to read them."""
        load(self.rows, partial(_settle, self.done))


class FileSweep:
    """A pass over the rows of tensors in files, in chunks of equal bytes.

    Attributes:
        tensors: The tensors, of equal numbers of rows.
        begun: Requests that were begun, each for a chunk of one tensor: those of the first chunk, and so on.
        held: Bytes of rows that are in memory or on their way, in either direction.
    """

    def __init__(self, tensors: Sequence[Tensor], writes: bool, course: Course | None = None) -> None:
        """Prepare a pass.

        Args:
            tensors: Tensors in one file, of equal numbers of rows.
            writes: Whether every row is written.
            course: The passes to which it belongs; None: it is alone.
        """
        self.tensors = [tensor.detach() for tensor in tensors]
        self._writes = writes
        self._course, self._is_alone = Course() if course is None else course, course is None
        row_bytes = [tensor[:1].numel() * tensor.element_size() for tensor in tensors]
        self._rows, self._around = chunk_rows(row_bytes), around_bytes(row_bytes)
        self._chunk_bytes = self._rows * sum(row_bytes)
        self._num_chunks = -(-len(tensors[0]) // self._rows)
        self._reading: deque[Future[None]] = deque()
        self._first = self._at_hand = 0
        self.begun = self.held = 0

    @property
    def chunk_rows(self) -> int:
        """Number of rows that are read or written together."""
        return self._rows

    @property
    def room(self) -> int:
        """Bytes of memory while one chunk is at work."""
        return self._chunk_bytes + self._around

    @property
    def has_more(self) -> bool:
        """Whether some rows have not been begun to read."""
        return self.begun < self._num_chunks * len(self.tensors)

    def is_over(self, tensors: Sequence[Tensor], writes: bool) -> bool:
        """Return whether this is a pass over some tensors that writes them or not."""
        own, others = ([tensor.data_ptr() for tensor in each] for each in (self.tensors, tensors))
        return own == others and self._writes == writes

    def shares(self, other: "FileSweep") -> bool:
        """Return whether this and another pass have a tensor in common."""
        own, others = ({tensor.data_ptr() for tensor in sweep.tensors} for sweep in (self, other))
        return not own.isdisjoint(others)

    def next_rows(self) -> Tensor:
        """Return the rows of the next request."""
        return self._request(self.begun)

    def take(self) -> Request:
        """Return the next request, which must then be read."""
        request = Request(self.next_rows())
        self._reading.append(request.done)
        self.begun += 1
        self.held += request.rows.nbytes
        return request

    def at(self, start: int, stop: int) -> None:
        """See `Sweep.at`."""
        first, needed = start // self._rows, min(-(-stop // self._rows), self._num_chunks)
        self._let_go_before(first)
        room = (needed - first) * self._chunk_bytes + self._around
        self._course.read(self, needed * len(self.tensors), room)
        while self._at_hand < needed:
            _raise_first(_failures([self._reading.popleft() for _ in self.tensors]))
            self._at_hand += 1

    def rows(self, start: int, stop: int) -> list[Tensor]:
        """See `Sweep.rows`."""
        return [tensor[start:stop] for tensor in self.tensors]

    def end(self) -> list[Exception]:
        """Begin to let go of all rows; return the errors of those that could not be read."""
        self._course.end(self)
        failed = _failures(self._reading)
        self._let_go_before(self._num_chunks)
        return failed

    def _let_go_before(self, chunk: int) -> None:
        num = len(self.tensors)
        for request in range(self._first, min(chunk * num, self.begun)):
            writes = self._writes and request < self._at_hand * num  # nobody wrote to what nobody waited for
            self._course.let_go(self, self._request(request), writes)
            self._first = request + 1

    def _request(self, number: int) -> Tensor:
        chunk, tensor = divmod(number, len(self.tensors))
        return self.tensors[tensor][chunk * self._rows : (chunk + 1) * self._rows]

    def __enter__(self) -> "FileSweep":
        self._course.open(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the rest, whatever failed to be read, and only then raise the first error."""
        failed = self.end()
        if self._is_alone:
            failed += self._course.close()
        if error is None:
            _raise_first(failed)


def _settle(done: Future[None], error: Exception | None) -> None:
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _raise_first(errors: Sequence[Exception]) -> None:
    for error in errors:
        raise error


def _failures(work: Iterable[Future[None]]) -> list[Exception]:
    """Wait for all of some work and return its errors."""
    failed: list[Exception] = []
    for part in work:
        try:
            part.result()
        except Exception as error:
            failed.append(error)
    return failed


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
