"""Where the rows of wide weights lie: in memory, in a file on a disk, or in the host's memory beside a GPU.

A pass over all rows is a `Sweep`: rows come to where they are computed ahead of their tile, and go back
behind it. Rows that a batch touches come and go by their numbers. None of this changes a number, and for
tensors in memory it does nothing.

A tensor in a file is a range of addresses. Its rows have memory there from when they are read to when they
are written again; all others read as zeros. A sweep reads and writes past the system's cache; rows that a
batch touches go through it, since many are touched again soon.
"""

import ctypes
import errno
import math
import mmap
import os
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from widenet.errors import NO_ROOM, CapacityError, OptionError
from widenet.kernels.rows import roomy
from widenet.plan import streaming

_THREADS = 24
_LARGE_PAGE, _UNRESERVED = 2**21, 0x4000
"""The processor's large pages, which sweeps work on; and Linux's `MAP_NORESERVE`."""


class Sweep:
    """A pass over the rows of tensors in order, of which the memory that computes holds only some.

    It is a context: at its end all rows have gone back. This one is over tensors in memory.

    Attributes:
        rows_together: Number of rows that come and go together; None: as many as `at` names.
    """

    rows_together: int | None = None

    def __init__(self, tensors: Sequence[Tensor], writes: bool) -> None:
        """Prepare a pass.

        Args:
            tensors: Tensors of equal numbers of rows and bytes.
            writes: Whether every row is written.
        """
        self.tensors, self.writes = [tensor.detach() for tensor in tensors], writes

    def at(self, start: int, stop: int) -> None:
        """Wait until the rows [start, stop) are at hand, and let go of all rows before them.

        Raises:
            CapacityError: The disk fails.
        """

    def rows(self, start: int, stop: int) -> list[Tensor]:
        """Return some rows of each tensor that `at` has brought, where they are computed."""
        return [tensor[start:stop] for tensor in self.tensors]

    def __enter__(self) -> "Sweep":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of all rows; raises CapacityError if the disk fails."""


class Scratch:
    """A file without a name in a folder: it is gone when the process ends, however it ends.

    Attributes:
        device: The device that computes the rows.
        folder: The folder.
        is_cached: Whether sweeps go through the system's cache, because the file system has no other way.
        descriptor: The file.
        threads: Threads that read and write.
    """

    device = torch.device("cpu")
    descriptor = _direct = -1
    is_cached = True

    def __init__(self, folder: Path) -> None:
        """Make the file; raises OptionError if the folder does not take one."""
        if sys.platform != "linux":
            raise OptionError("needs Linux", option="weights_in", value="disk")
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                self.descriptor = os.dup(file.fileno())
        except OSError as error:
            raise OptionError(
                f"must be a folder that takes files, for weights on a disk: {error.strerror or error}",
                place=folder,
            ) from None
        with suppress(OSError):
            self._direct = os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDWR | os.O_DIRECT)
            os.pwritev(self._direct, [mmap.mmap(-1, streaming.PAGE_BYTES)], 0)
            self.is_cached = False
        self.folder, self._num_bytes, self._lock = folder, 0, Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._process = 0

    @property
    def threads(self) -> ThreadPoolExecutor:
        """The threads of this process: one that was forked has none of its parent's."""
        if self._threads is None or self._process != os.getpid():
            self._process = os.getpid()
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="scratch")
        return self._threads

    def __del__(self) -> None:
        """Close the file."""
        for descriptor in (self.descriptor, self._direct):
            if descriptor >= 0:
                os.close(descriptor)

    def zeros(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor of zeros in the file; its place on the disk is reserved at once.

        Raises:
            CapacityError: The disk has no room for it.
        """
        num_bytes = math.prod(shape) * dtype.itemsize
        if not num_bytes:
            return torch.zeros(*shape, dtype=dtype)
        size = -(-num_bytes // streaming.PAGE_BYTES) * streaming.PAGE_BYTES
        with self._lock:
            offset, self._num_bytes = self._num_bytes, self._num_bytes + size
        try:
            os.posix_fallocate(self.descriptor, offset, size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise CapacityError(
                f"has no room for {offset + size:,} bytes of weights and optimizer state", place=self.folder
            ) from None
        memory = _Memory(-1, size + _LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNRESERVED)
        before = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % _LARGE_PAGE
        tensor = torch.frombuffer(memory, dtype=dtype, count=math.prod(shape), offset=before)
        memory.address = tensor.data_ptr()
        region = _regions[memory.address] = _Region(memory.address, offset, size, self)
        region.advise(mmap.MADV_NOHUGEPAGE, 0, size)
        return tensor.view(*shape)

    def sweep(self, tensors: Sequence[Tensor], writes: bool) -> Sweep:
        """Return a pass over tensors in the file."""
        return _FileSweep(tensors, writes, self) if tensors[0].numel() else Sweep(tensors, writes)

    def copy(self, rows: Tensor) -> Tensor:
        """Return a copy of consecutive rows of a tensor in the file, of which no rows are at hand."""
        return self.select(rows, torch.arange(len(rows)))

    def select(self, tensor: Tensor, rows_U: Tensor) -> Tensor:
        """Return copies of some rows of a tensor in the file, int64 [U], of which no rows are at hand."""
        self.bring([tensor], rows_U.sort().values)
        copies = tensor.index_select(0, rows_U)
        self.give_back([tensor], rows_U, writes=False)
        return copies

    def bring(self, tensors: Sequence[Tensor], rows_U: Tensor) -> None:
        """Read some rows, int64 [U], ascending, of those tensors that are in the file.

        Raises:
            CapacityError: The disk fails.
        """
        self._move_rows(False, tensors, rows_U)

    def give_back(
        self, tensors: Sequence[Tensor], rows_U: Tensor, writes: bool, copies: Sequence[Tensor] = ()
    ) -> None:
        """Let go of all rows of tensors, of which some, int64 [U], ascending, may be written before.

        Raises:
            CapacityError: The disk fails.
        """
        try:
            if writes:
                self._move_rows(True, tensors, rows_U)
        finally:
            for region in _regions_of(tensors):
                region.advise(mmap.MADV_DONTNEED, 0, region.num_bytes)

    def _move_rows(self, writes: bool, tensors: Sequence[Tensor], rows_U: Tensor) -> None:
        if not len(rows_U):
            return
        rows, moves = rows_U.numpy(), []
        runs = [(int(run[0]), len(run)) for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)]
        for tensor in (own for own in tensors if file_of(own) is not None):
            region, row = _region_of(tensor), tensor[:1].nbytes
            region.is_cache_written |= writes
            start = tensor.data_ptr() - region.address
            moves += [(region, start + first * row, num * row) for first, num in runs]

        def move(some: Sequence[tuple[_Region, int, int]]) -> None:
            for region, start, size in some:
                region.move(writes, start, size)

        _finish([self.threads.submit(move, moves[first::_THREADS]) for first in range(_THREADS)])

    def move(self, writes: bool, memory: memoryview, offset: int, is_sweep: bool = False) -> None:
        """Read a part of the file into memory, or write it; raises CapacityError if the disk fails."""
        descriptor = self._direct if is_sweep and not self.is_cached else self.descriptor
        call, done = os.pwritev if writes else os.preadv, 0
        while done < len(memory):
            try:
                moved = call(descriptor, [memory[done:]], offset + done)
            except OSError as error:
                raise self._failure(error) from None
            if not moved:
                raise self._failure(OSError(errno.EIO, os.strerror(errno.EIO)))
            done += moved
        if is_sweep and self.is_cached:
            os.posix_fadvise(descriptor, offset, done, os.POSIX_FADV_DONTNEED)

    def settle(self) -> None:
        """Wait until the disk has taken all that was written; raises CapacityError if it does not."""
        try:
            os.fdatasync(self.descriptor)
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> CapacityError:
        return CapacityError(
            f"does not keep the weights that are to lie there: {error.strerror}", place=self.folder
        )


@dataclass
class _Region:
    """The addresses of a tensor in a file, in whole pages.

    Attributes:
        address: The first one, the tensor's.
        offset: Their place in the file.
        num_bytes: Their number.
        file: The file.
        is_cache_written: Whether rows were written through the system's cache since the last sweep.
    """

    address: int
    offset: int
    num_bytes: int
    file: Scratch
    is_cache_written: bool = False

    def move(self, writes: bool, start: int, size: int, is_sweep: bool = False) -> None:
        """Read some bytes into their memory, or write them."""
        memory = memoryview((ctypes.c_char * size).from_address(self.address + start)).cast("B")
        self.file.move(writes, memory, self.offset + start, is_sweep)

    def advise(self, advice: int, start: int, size: int) -> None:
        """Let the kernel free memory, or ask for large pages, which it may not have."""
        _libc.madvise(ctypes.c_void_p(self.address + start), ctypes.c_size_t(size), ctypes.c_int(advice))


_libc = ctypes.CDLL(None)
_regions: dict[int, _Region] = {}
"""Tensors in files, by address."""


class _Memory(mmap.mmap):
    """Addresses of a tensor, which end with it."""

    address = 0

    def __del__(self) -> None:
        """Forget the tensor."""
        _regions.pop(self.address, None)


def _region_of(tensor: Tensor) -> _Region:
    return _regions[tensor.untyped_storage().data_ptr()]


def _regions_of(tensors: Sequence[Tensor]) -> list[_Region]:
    return [_region_of(tensor) for tensor in tensors if file_of(tensor) is not None]


def file_of(tensor: Tensor) -> Scratch | None:
    """Return the file of a tensor or of some of its rows; None if it is in memory."""
    in_file = tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in _regions
    return _region_of(tensor).file if in_file else None


class _FileSweep(Sweep):
    """A pass over tensors in a file, in pieces of equal bytes, the same for all tensors."""

    def __init__(self, tensors: Sequence[Tensor], writes: bool, file: Scratch) -> None:
        super().__init__(tensors, writes)
        self._file, self._regions = file, _regions_of(tensors)
        self._row, self._start = tensors[0][:1].nbytes, tensors[0].data_ptr() - self._regions[0].address
        self._stop, self._piece = self._start + tensors[0].nbytes, streaming.REQUEST_BYTES
        self.rows_together = max(self._piece // max(self._row, 1), 1)
        self._first = self._begun = self._at_hand = self._start // self._piece
        self._reading: deque[Future[None]] = deque()
        self._storing: deque[Future[None]] = deque()

    def at(self, start: int, stop: int) -> None:
        first, needed = self._start + start * self._row, self._start + stop * self._row
        self._let_go_before(first // self._piece)
        while len(self._storing) > streaming.NUM_BEHIND * len(self._regions):
            self._storing.popleft().result()
        needed, num = -(-needed // self._piece), -(-self._stop // self._piece)
        while self._begun < min(needed + streaming.NUM_AHEAD, num):
            self._reading += self._submit(self._read, self._begun)
            self._begun += 1
        while self._at_hand < needed:
            _finish([self._reading.popleft() for _ in self._regions])
            self._at_hand += 1

    def _submit(self, work: Callable[..., None], piece: int, *more: bool) -> list[Future[None]]:
        start = piece * self._piece
        place = start, min(self._piece, self._regions[0].num_bytes - start)
        return [self._file.threads.submit(work, region, *place, *more) for region in self._regions]

    def _read(self, region: _Region, start: int, size: int) -> None:
        region.move(False, start, size, is_sweep=True)

    def _store(self, region: _Region, start: int, size: int, writes: bool) -> None:
        try:
            if writes:
                region.move(True, start, size, is_sweep=True)
        finally:
            region.advise(mmap.MADV_DONTNEED, start, size)

    def _let_go_before(self, piece: int) -> None:
        """Begin to write and free pieces."""
        for each in range(self._first, min(piece, self._begun)):
            # Nobody has written to what nobody has waited for.
            self._storing += self._submit(self._store, each, self.writes and each < self._at_hand)
            self._first = each + 1

    def __enter__(self) -> Sweep:
        """Begin, once the disk has taken the rows that were written before."""
        if any(region.is_cache_written for region in self._regions):
            self._file.settle()
        for region in self._regions:
            region.is_cache_written = False
            region.advise(mmap.MADV_HUGEPAGE, 0, region.num_bytes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the rest, whatever failed to be read, and only then raise the first error."""
        wait(self._reading)
        try:
            self._let_go_before(self._begun)
            _finish([*self._reading, *self._storing])
            if self.writes and self._file.is_cached:
                self._file.settle()
        except CapacityError:
            if kind is None:
                raise
        finally:
            for region in self._regions:
                region.advise(mmap.MADV_NOHUGEPAGE, 0, region.num_bytes)


def _finish(work: Sequence[Future[None]]) -> None:
    """Wait for all work, and only then raise its first error."""
    wait(work)
    for each in work:
        each.result()


class HostMemory:
    """Pinned memory for weights, whose rows are copied to a CUDA device and back.

    Attributes:
        device: The device.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def zeros(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return zeros of exactly their size; torch's own pinned memory rounds up to a power of two.

        Raises:
            CapacityError: The system does not pin so much memory.
        """
        num_bytes = math.prod(shape) * dtype.itemsize
        if not num_bytes:
            return torch.zeros(*shape, dtype=dtype)
        memory = _Pinned(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        tensor = torch.frombuffer(memory, dtype=dtype)
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        if int(runtime.cudaHostRegister(tensor.data_ptr(), num_bytes, 0)):
            raise CapacityError(
                f"the system does not pin {num_bytes:,} bytes of memory for weights and optimizer state"
            )
        memory.unpin = partial(runtime.cudaHostUnregister, tensor.data_ptr())
        return tensor.view(*shape)

    def sweep(self, tensors: Sequence[Tensor], writes: bool) -> Sweep:
        """Return a pass over tensors in this memory."""
        return _HostSweep(tensors, writes, self)

    def copy(self, rows: Tensor) -> Tensor:
        """Return a copy on the device of consecutive rows of a tensor.

        It begins as far behind a multiple of `ALIGNED_BYTES` as it would in a tensor on the device.
        """
        before = rows.storage_offset() * rows.element_size() % streaming.ALIGNED_BYTES
        memory = torch.empty(streaming.room_for(rows.nbytes), dtype=torch.uint8, device=self.device)
        own = memory[before : before + rows.nbytes].view(rows.dtype).view(rows.shape)
        return own.copy_(rows, non_blocking=True)

    def send_back(self, copies: Tensor, rows: Tensor) -> None:
        """Begin to write copies into consecutive rows of a tensor, once the device has computed them."""
        rows.copy_(copies, non_blocking=True)

    def select(self, tensor: Tensor, rows_U: Tensor) -> Tensor:
        """Return copies on the device of some rows, int64 [U] on any device."""
        staged = torch.empty(len(rows_U), *tensor.shape[1:], dtype=tensor.dtype, pin_memory=True)
        torch.index_select(tensor, 0, rows_U.cpu(), out=staged)
        return staged.to(self.device, non_blocking=True)

    def bring(self, tensors: Sequence[Tensor], rows_U: Tensor) -> list[Tensor]:
        """Return copies on the device of some rows of tensors, int64 [U] on any device."""
        return [self.select(tensor, rows_U) for tensor in tensors]

    def give_back(
        self, tensors: Sequence[Tensor], rows_U: Tensor, writes: bool, copies: Sequence[Tensor] = ()
    ) -> None:
        """Let go of the copies that `bring` has returned; those that may have changed are written back.

        Writing waits for the device.
        """
        if not writes:
            return
        staged = [torch.empty(own.shape, dtype=own.dtype, pin_memory=True) for own in copies]
        for own, into in zip(copies, staged, strict=True):
            into.copy_(own, non_blocking=True)
        torch.cuda.current_stream(self.device).synchronize()
        for tensor, into in zip(tensors, staged, strict=True):
            tensor.index_copy_(0, rows_U.cpu(), into)


class _Pinned(mmap.mmap):
    """Pinned memory, which ends with its last tensor."""

    unpin: Callable[[], object] | None = None

    def __del__(self) -> None:
        """Let the system move the memory again before it is given back."""
        if self.unpin is not None:
            self.unpin()


class _HostSweep(Sweep):
    """A pass over tensors in the host's memory: the rows that `at` names are on the device."""

    def __init__(self, tensors: Sequence[Tensor], writes: bool, host: HostMemory) -> None:
        super().__init__(tensors, writes)
        self._host, self._start = host, 0
        self._copies: list[tuple[Tensor, Tensor]] = []

    def at(self, start: int, stop: int) -> None:
        self._send_back()
        in_host = [tensor[start:stop] for tensor in self.tensors]
        self._start, self._copies = start, [(rows, self._host.copy(rows)) for rows in in_host]

    def rows(self, start: int, stop: int) -> list[Tensor]:
        return [own[start - self._start : stop - self._start] for _, own in self._copies]

    def _send_back(self) -> None:
        for rows, own in self._copies if self.writes else []:
            self._host.send_back(own, rows)
        self._copies = []  # the memory is free before the next rows need it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the rest back, and wait until the host has it."""
        self._send_back()
        if self.writes:
            torch.cuda.current_stream(self._host.device).synchronize()


Store = Scratch | HostMemory
"""Where the rows of a weight lie if not in the memory of the device that computes them."""


def sweep_over(tensors: Sequence[Tensor], writes: bool, store: Store | None) -> Sweep:
    """Return a pass over tensors of a store, or in memory."""
    return Sweep(tensors, writes) if store is None else store.sweep(tensors, writes)


def blocks(tensor: Tensor, rows: int, writes: bool = False, store: Store | None = None) -> Iterator[Tensor]:
    """Yield a tensor in blocks of rows, in order.

    Args:
        tensor: The tensor, or consecutive rows of one.
        rows: Number of rows of a block.
        writes: Whether each block is written before the next one.
        store: Where it lies; None: where it is computed, or in a file.
    """
    with sweep_over([tensor], writes, store or file_of(tensor)) as sweep:
        for start in range(0, len(tensor), rows):
            stop = min(start + rows, len(tensor))
            sweep.at(start, stop)
            yield sweep.rows(start, stop)[0]


def put_rows(tensor: Tensor, rows_U: Tensor, values: Tensor) -> None:
    """Write some rows of a tensor in memory or in a file, int64 [U], none twice."""
    tensor.index_copy_(0, rows_U, values)
    file = file_of(tensor)
    if file is not None:
        file.give_back([tensor], rows_U.sort().values, writes=True)


def zeros_for(weight: Tensor, store: Store | None) -> Tensor:
    """Return zeros of a weight's shape and type where the weight lies."""
    if store is None:
        return roomy(weight.shape, weight.dtype, weight.device)
    return store.zeros(weight.shape, weight.dtype)


def tile_ranges(starts: Sequence[int], rows: int | None) -> Iterator[tuple[int, int]]:
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
