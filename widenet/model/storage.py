"""Where the rows of wide weights lie: in memory, in a file on a disk, or in the host's memory beside a GPU.

A pass over all rows is a sweep: rows come to where they are computed ahead of their tile, and go back behind
it. Rows that a batch touches come and go by their numbers. None of this changes a number, and for tensors in
memory it does nothing.

A tensor in a file is a range of addresses. Its rows have memory there from when they are read to when they
are written again; all others read as zeros. A sweep reads and writes past the system's cache; rows that a
batch touches go through it, since many are touched again soon.
"""

import ctypes
import errno
import math
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from widenet.errors import CapacityError, OptionError
from widenet.kernels.rows import roomy
from widenet.plan import tiles

_THREADS = 24
_LARGE_PAGE, _UNRESERVED = 2**21, 0x4000
"""The processor's large pages, which sweeps work on; and Linux's `MAP_NORESERVE`."""
Range = tuple[int, int]
"""Rows: the first one, and the one after the last."""


class Scratch:
    """A file without a name in a folder: it is gone when the process ends, however it ends.

    Attributes:
        device: The device that computes the rows.
        folder: The folder.
        cached: The file, through the system's cache.
        direct: The file, past the system's cache.
    """

    device = torch.device("cpu")
    cached = direct = -1
    _is_dirty = False

    def __init__(self, folder: Path) -> None:
        """Make the file; raises OptionError if the folder does not take one."""
        self.folder, self._num_bytes, self._lock, self._settling = folder, 0, Lock(), Lock()
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                self.cached = os.dup(file.fileno())
            self.direct = os.open(f"/proc/self/fd/{self.cached}", os.O_RDWR | os.O_DIRECT)
            os.pwritev(self.direct, [mmap.mmap(-1, tiles.PAGE_BYTES)], 0)
        except OSError as error:
            rule = "must be a folder on a disk that takes files past the system's cache (O_DIRECT)"
            raise OptionError(f"{rule}: {error.strerror or error}", place=folder) from None

    def __del__(self) -> None:
        """Close the file."""
        for descriptor in (self.cached, self.direct):
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
        size = -(-num_bytes // tiles.PAGE_BYTES) * tiles.PAGE_BYTES
        with self._lock:
            offset, self._num_bytes = self._num_bytes, self._num_bytes + size
        try:
            os.posix_fallocate(self.cached, offset, size)
        except OSError as error:
            raise self.failure(error) from None
        memory = _Memory(-1, size + _LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNRESERVED)
        before = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % _LARGE_PAGE
        tensor = torch.frombuffer(memory, dtype=dtype, count=math.prod(shape), offset=before)
        memory.address = tensor.data_ptr()
        region = _regions[memory.address] = _Region(memory.address, offset, size, self)
        region.advise(mmap.MADV_NOHUGEPAGE, 0, size)
        return tensor.view(*shape)

    def most_rows(self, tensor: Tensor) -> int:
        """Return the number of rows that come and go together."""
        return max(tiles.REQUEST_BYTES // max(tensor[:1].nbytes, 1), 1)

    def sweep(
        self, tensors: Sequence[Tensor], writes: bool, ranges: Iterable[Range]
    ) -> Iterator[list[Tensor]]:
        """Yield ranges of rows of tensors in the file; see `sweep_over`.

        The rows are read and written in pieces of equal bytes, the same for all tensors.
        """
        regions, row, piece = _regions_of(tensors), tensors[0][:1].nbytes, tiles.REQUEST_BYTES
        begin, num_bytes = tensors[0].data_ptr() - regions[0].address, regions[0].num_bytes
        num, threads = -(-(begin + tensors[0].nbytes) // piece), _threads(os.getpid())
        stored = begun = at_hand = begin // piece
        reading: deque[Future[None]] = deque()
        storing: deque[Future[None]] = deque()
        let_go = _Region.store if writes else _Region.free

        def submit(work: Callable[[_Region, int, int], None], first: int, last: int) -> list[Future[None]]:
            places = [
                (place, min(piece, num_bytes - place)) for place in range(first * piece, last * piece, piece)
            ]
            return [threads.submit(work, region, *place) for place in places for region in regions]

        self._settle()
        for region in regions:
            region.advise(mmap.MADV_HUGEPAGE, 0, num_bytes)
        try:
            for start, stop in ranges:
                first, needed = (begin + start * row) // piece, -(-(begin + stop * row) // piece)
                storing.extend(submit(let_go, stored, first))
                while len(storing) > tiles.NUM_BEHIND * len(regions):
                    storing.popleft().result()
                ahead = min(needed + tiles.NUM_AHEAD, num)
                reading.extend(submit(_Region.read, begun, ahead))
                _finish([reading.popleft() for _ in range((needed - at_hand) * len(regions))])
                stored, begun, at_hand = first, ahead, needed
                yield [tensor[start:stop] for tensor in tensors]
            storing.extend(submit(let_go, stored, at_hand))
            _finish(storing)
        finally:
            wait([*reading, *storing])
            for region in regions:
                region.free(0, num_bytes)
                region.advise(mmap.MADV_NOHUGEPAGE, 0, num_bytes)

    def _settle(self) -> None:
        """Wait for the disk to take rows that were written through the cache since the last sweep."""
        with self._settling:  # nobody passes while another waits
            is_dirty, self._is_dirty = self._is_dirty, False
            try:
                if is_dirty:
                    os.fdatasync(self.cached)
            except OSError as error:
                raise self.failure(error) from None

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
                region.free(0, region.num_bytes)

    def _move_rows(self, writes: bool, tensors: Sequence[Tensor], rows_U: Tensor) -> None:
        if not len(rows_U):
            return
        rows, moves = rows_U.numpy(), []
        self._is_dirty = self._is_dirty or writes
        runs = [(int(run[0]), len(run)) for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)]
        for tensor in (own for own in tensors if file_of(own) is not None):
            region, row = _region_of(tensor), tensor[:1].nbytes
            start = tensor.data_ptr() - region.address
            moves += [(region, start + first * row, num * row) for first, num in runs]

        def move(some: Sequence[tuple[_Region, int, int]]) -> None:
            for region, start, size in some:
                region.move(self.cached, writes, start, size)

        threads = _threads(os.getpid())
        _finish([threads.submit(move, moves[first::_THREADS]) for first in range(_THREADS)])

    def failure(self, error: OSError) -> CapacityError:
        """Return the error of a disk that fails or is full."""
        return CapacityError(
            f"does not keep the weights that are to lie there: {error.strerror}", place=self.folder
        )


@cache
def _threads(process: int) -> ThreadPoolExecutor:
    """Return the threads of a process that read and write: one that was forked has none of its parent's."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix=f"scratch of {process}")


@dataclass
class _Region:
    """The addresses of a tensor in a file, in whole pages.

    Attributes:
        address: The first one, the tensor's.
        offset: Their place in the file.
        num_bytes: Their number.
        file: The file.
    """

    address: int
    offset: int
    num_bytes: int
    file: Scratch

    def move(self, descriptor: int, writes: bool, start: int, size: int) -> None:
        """Read some bytes into their memory, or write them; raises CapacityError if the disk fails."""
        memory = memoryview((ctypes.c_char * size).from_address(self.address + start)).cast("B")
        call, done = os.pwritev if writes else os.preadv, 0
        while done < size:
            try:
                moved = call(descriptor, [memory[done:]], self.offset + start + done)
            except OSError as error:
                raise self.file.failure(error) from None
            if not moved:
                raise self.file.failure(OSError(errno.EIO, os.strerror(errno.EIO)))
            done += moved

    def read(self, start: int, size: int) -> None:
        """Read some bytes past the system's cache."""
        self.move(self.file.direct, False, start, size)

    def store(self, start: int, size: int) -> None:
        """Write some bytes past the system's cache, and free their memory."""
        self.move(self.file.direct, True, start, size)
        self.free(start, size)

    def free(self, start: int, size: int) -> None:
        """Free the memory of some bytes."""
        self.advise(mmap.MADV_DONTNEED, start, size)

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

    def sweep(
        self, tensors: Sequence[Tensor], writes: bool, ranges: Iterable[Range]
    ) -> Iterator[list[Tensor]]:
        """Yield copies on the device of ranges of rows of tensors; see `sweep_over`."""
        for start, stop in ranges:
            in_host = [tensor[start:stop] for tensor in tensors]
            copies = [self.copy(rows) for rows in in_host]
            yield copies
            for rows in in_host if writes else ():
                self.send_back(copies.pop(0), rows)
            copies.clear()  # the memory is free before the next rows need it
        if writes:
            torch.cuda.current_stream(self.device).synchronize()

    def copy(self, rows: Tensor) -> Tensor:
        """Return a copy on the device of consecutive rows of a tensor.

        It begins as far behind a multiple of `ALIGNED_BYTES` as it would in a tensor on the device.
        """
        before = rows.storage_offset() * rows.element_size() % tiles.ALIGNED_BYTES
        memory = torch.empty(tiles.room_for(rows.nbytes), dtype=torch.uint8, device=self.device)
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


Store = Scratch | HostMemory
"""Where the rows of a weight lie if not in the memory of the device that computes them."""


def sweep_over(
    tensors: Sequence[Tensor], writes: bool, ranges: Iterable[Range], store: Store | None
) -> Iterator[list[Tensor]]:
    """Pass over tensors: yield the rows of each in a range, where they are computed until the next range.

    Args:
        tensors: Tensors of equal numbers of rows and bytes.
        writes: Whether every row is written.
        ranges: Ranges of rows, in order.
        store: Where they lie; None: where they are computed.

    Raises:
        CapacityError: The disk fails.
    """
    tensors = [tensor.detach() for tensor in tensors]
    if store is None or not tensors[0].numel():
        return ([tensor[start:stop] for tensor in tensors] for start, stop in ranges)
    return store.sweep(tensors, writes, ranges)


def blocks(tensor: Tensor, rows: int, writes: bool = False, store: Store | None = None) -> Iterator[Tensor]:
    """Return a tensor in blocks of rows, in order.

    Args:
        tensor: The tensor, or consecutive rows of one.
        rows: Number of rows of a block.
        writes: Whether each block is written before the next one.
        store: Where it lies; None: where it is computed, or in a file.
    """
    ranges = ((start, min(start + rows, len(tensor))) for start in range(0, len(tensor), rows))
    return (block for (block,) in sweep_over([tensor], writes, ranges, store or file_of(tensor)))


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
