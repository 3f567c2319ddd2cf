"""Where the rows of wide weights lie: in memory, in a file on a disk, or in the host's memory beside a GPU.

A pass over all rows is a sweep: rows come to where they are computed ahead of their tile, and go back behind
it. Rows that a batch touches come and go by their numbers. None of this changes a number, and for tensors in
memory it does nothing.

A tensor in a file is a range of addresses. In a sweep, its rows have memory there from when they are read to
when they are written again; all others read as zeros. A sweep reads and writes past the system's cache.
Copies of rows that a batch touches go through it, since many are touched again soon.
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
from itertools import pairwise
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from widenet.errors import CapacityError, OptionError
from widenet.kernels.bags import roomy
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

    def zeros(self, shape: Sequence[int]) -> Tensor:
        """Return a tensor of float32 zeros in the file; its place on the disk is reserved at once.

        Raises:
            CapacityError: The disk has no room for it.
        """
        size = -(-4 * math.prod(shape) // tiles.PAGE_BYTES) * tiles.PAGE_BYTES
        with self._lock:
            offset, self._num_bytes = self._num_bytes, self._num_bytes + size
        try:
            os.posix_fallocate(self.cached, offset, size)
        except OSError as error:
            raise self.failure(error) from None
        memory = _Memory(-1, size + _LARGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNRESERVED)
        before = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % _LARGE_PAGE
        tensor = torch.frombuffer(memory, dtype=torch.float32, count=math.prod(shape), offset=before)
        memory.at_end = partial(_regions.pop, tensor.data_ptr())
        region = _regions[tensor.data_ptr()] = _Region(tensor.data_ptr(), offset, size, self)
        region.advise(mmap.MADV_HUGEPAGE, 0, size)
        return tensor.view(*shape)

    def sweep(
        self, tensors: Sequence[Tensor], writes: bool, ranges: Iterable[Range]
    ) -> Iterator[list[Tensor]]:
        """Yield ranges of rows of tensors in the file; see `sweep_over`.

        The rows are read and written in pieces of equal bytes, the same for all tensors.
        """
        regions = [_region_of(tensor) for tensor in tensors if file_of(tensor) is not None]
        row, piece = tensors[0][:1].nbytes, tiles.REQUEST_BYTES
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
        try:
            for start, stop in ranges:
                first, needed = (begin + start * row) // piece, -(-(begin + stop * row) // piece)
                storing.extend(submit(let_go, stored, first))
                while len(storing) > tiles.NUM_BEHIND * len(regions):
                    storing.popleft().result()
                ahead = min(needed + tiles.NUM_AHEAD, num)
                reading.extend(submit(_Region.fetch, begun, ahead))
                _finish([reading.popleft() for _ in range((needed - at_hand) * len(regions))])
                stored, begun, at_hand = first, ahead, needed
                yield [tensor[start:stop] for tensor in tensors]
            storing.extend(submit(let_go, stored, at_hand))
            _finish(storing)
        finally:
            wait([*reading, *storing])
            for region in regions:
                region.free(0, num_bytes)

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
        """Return a copy of consecutive rows of a tensor in the file."""
        return self.select(rows, torch.arange(len(rows)))

    def select(self, tensor: Tensor, rows_U: Tensor) -> Tensor:
        """Return copies of some rows of a tensor in the file or in memory, int64 [U].

        Raises:
            CapacityError: The disk fails.
        """
        if file_of(tensor) is None:
            return tensor.index_select(0, rows_U)
        copies = torch.empty(len(rows_U), *tensor.shape[1:], dtype=tensor.dtype)
        self.move_rows(False, tensor, rows_U, copies)
        return copies

    def put(self, tensors: Sequence[Tensor], rows_U: Tensor, copies: Sequence[Tensor]) -> None:
        """See `put_rows`."""
        for tensor, own in zip(tensors, copies, strict=True):
            put_rows(tensor, rows_U, own)

    def move_rows(self, writes: bool, tensor: Tensor, rows_U: Tensor, copies: Tensor) -> None:
        """Read some rows of a tensor in the file into contiguous copies, or write them."""
        self._is_dirty = self._is_dirty or writes
        region, row = _region_of(tensor), tensor[:1].nbytes
        begin, rows = region.offset + tensor.data_ptr() - region.address, rows_U.numpy()
        edges = sorted({0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)})

        def move(runs: Sequence[tuple[int, int]]) -> None:
            for first, last in runs:
                address, place = copies.data_ptr() + first * row, begin + int(rows[first]) * row
                self.move(self.cached, writes, address, place, (last - first) * row)

        threads, runs = _threads(os.getpid()), [*pairwise(edges)]
        _finish([threads.submit(move, runs[first::_THREADS]) for first in range(_THREADS)])

    def move(self, descriptor: int, writes: bool, address: int, place: int, size: int) -> None:
        """Read some bytes of the file into memory, or write them; raises CapacityError if the disk fails."""
        memory = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
        call, done = os.pwritev if writes else os.preadv, 0
        while done < size:
            try:
                moved = call(descriptor, [memory[done:]], place + done)
            except OSError as error:
                raise self.failure(error) from None
            if not moved:
                raise self.failure(OSError(errno.EIO, os.strerror(errno.EIO)))
            done += moved

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
    """The addresses of a tensor in a file.

    Attributes:
        address: The first one, the tensor's.
        offset: Their place in the file.
        num_bytes: Their number, in whole pages.
        file: The file.
    """

    address: int
    offset: int
    num_bytes: int
    file: Scratch

    def fetch(self, start: int, size: int) -> None:
        """Read some bytes past the system's cache."""
        self.file.move(self.file.direct, False, self.address + start, self.offset + start, size)

    def store(self, start: int, size: int) -> None:
        """Write some bytes past the system's cache, and free their memory."""
        self.file.move(self.file.direct, True, self.address + start, self.offset + start, size)
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


def _region_of(tensor: Tensor) -> _Region:
    return _regions[tensor.untyped_storage().data_ptr()]


def file_of(tensor: Tensor) -> Scratch | None:
    """Return the file of a tensor or of some of its rows; None if it is in memory."""
    in_file = tensor.device.type == "cpu" and tensor.untyped_storage().data_ptr() in _regions
    return _region_of(tensor).file if in_file else None


def _finish(work: Sequence[Future[None]]) -> None:
    """Wait for all work, and only then raise its first error."""
    wait(work)
    for each in work:
        each.result()


@dataclass(eq=False)
class HostMemory:
    """Pinned memory for weights, whose rows are copied to a CUDA device and back.

    Attributes:
        device: The device.
    """

    device: torch.device

    def zeros(self, shape: Sequence[int]) -> Tensor:
        """Return float32 zeros of exactly their size; torch's own pinned memory rounds up to a power of two.

        Raises:
            CapacityError: The system does not pin so much memory.
        """
        num_bytes = 4 * math.prod(shape)
        memory = _Memory(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        tensor = torch.frombuffer(memory, dtype=torch.float32)
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        if int(runtime.cudaHostRegister(tensor.data_ptr(), num_bytes, 0)):
            raise CapacityError(
                f"the system does not pin {num_bytes:,} bytes of memory for weights and optimizer state"
            )
        memory.at_end = partial(runtime.cudaHostUnregister, tensor.data_ptr())
        return tensor.view(*shape)

    def sweep(
        self, tensors: Sequence[Tensor], writes: bool, ranges: Iterable[Range]
    ) -> Iterator[list[Tensor]]:
        """Yield copies on the device of ranges of rows of tensors; see `sweep_over`."""
        for start, stop in ranges:
            copies = [self.copy(tensor[start:stop]) for tensor in tensors]
            yield copies
            for tensor in tensors if writes else ():
                tensor[start:stop].copy_(copies.pop(0), non_blocking=True)
            copies.clear()  # the memory is free before the next rows need it
        if writes:
            torch.cuda.current_stream(self.device).synchronize()

    def copy(self, rows: Tensor) -> Tensor:
        """Return a copy on the device of consecutive rows of a tensor.

        It begins as far behind a multiple of `ALIGNED_BYTES` as it would in a tensor on the device.
        """
        before = rows.storage_offset() * rows.element_size() % tiles.ALIGNED_BYTES
        memory = torch.empty(rows.nbytes + tiles.ALIGNED_BYTES, dtype=torch.uint8, device=self.device)
        own = memory[before : before + rows.nbytes].view(rows.dtype).view(rows.shape)
        return own.copy_(rows, non_blocking=True)

    def select(self, tensor: Tensor, rows_U: Tensor) -> Tensor:
        """Return copies on the device of some rows, int64 [U] on any device."""
        staged = torch.empty(len(rows_U), *tensor.shape[1:], dtype=tensor.dtype, pin_memory=True)
        torch.index_select(tensor, 0, rows_U.cpu(), out=staged)
        return staged.to(self.device, non_blocking=True)

    def put(self, tensors: Sequence[Tensor], rows_U: Tensor, copies: Sequence[Tensor]) -> None:
        """Write copies on the device into some rows, int64 [U] on any device; waits once for the device."""
        staged = [
            torch.empty(own.shape, dtype=own.dtype, pin_memory=True).copy_(own, non_blocking=True)
            for own in copies
        ]
        torch.cuda.current_stream(self.device).synchronize()
        rows = rows_U.cpu()
        for tensor, own in zip(tensors, staged, strict=True):
            tensor.index_copy_(0, rows, own)


class _Memory(mmap.mmap):
    """Memory of a tensor: at its end it is unpinned, or the tensor's place in a file forgotten."""

    at_end: Callable[[], object] | None = None

    def __del__(self) -> None:
        """Let go of it before the system takes it back."""
        if self.at_end is not None:
            self.at_end()


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
    """Write some rows of a tensor in memory or in a file, int64 [U], none twice.

    Raises:
        CapacityError: The disk fails.
    """
    file = file_of(tensor)
    if file is None:
        tensor.index_copy_(0, rows_U, values)
    else:
        file.move_rows(True, tensor, rows_U, values.contiguous())


def zeros(
    shape: Sequence[int], device: torch.device, store: Store | None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return zeros where a weight lies; in a store they are float32."""
    return roomy(shape, dtype, device) if store is None or 0 in shape else store.zeros(shape)
