"""Tensors in a file on a disk, whose rows are in memory while they are used.

A tensor is a part of the file, mapped into memory, so that everything may read and write it at any time.
Passes over all rows bring some at a time into memory of their own, past the system's cache (`load`, `store`).
Rows that a batch touches are left to that cache (`fetch_rows`, `read_around`, `release`, `unmap`).
All of these change which rows are in memory, never a number; the latter do nothing for other tensors.
"""

import ctypes
import errno
import math
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from widenet.errors import NO_ROOM, CapacityError, OptionError
from widenet.kernels.kernel_queue import KernelQueue
from widenet.kernels.rooms import Rooms, map_memory

PAGE_BYTES = 4096
"""Rows are loaded and stored in multiples of this, as disks ask for past the system's cache."""

_THREADS = 32
"""Threads that read and write where the kernel has no queue."""

Then = Callable[[Exception | None], None]
"""Called once, in any thread: with None when what was begun is done, or with its error."""

_BEGINNING = 2**21
"""A large page: a tensor begins with one in its file, and in memory if it has as many bytes."""
_FIXED, _FIXED_AND_FREE, _UNRESERVED = 0x10, 0x100000, 0x4000
"""Linux's numbers for `mmap`."""
_NORMAL, _RANDOM, _DO_NOT_NEED, _WRITE_AND_WAIT = 0, 1, 4, 7
"""Linux's numbers for `madvise` (three) and `sync_file_range`."""
_libc = ctypes.CDLL(None, use_errno=True)


class Scratch:
    """A file without a name in a folder: it is gone when the process ends, however it ends.

    Attributes:
        folder: The folder.
        queue: The kernel's queue of reads and writes; None if there is none, or none past the cache.
        threads: Threads that read and write in its place.
        rooms: Memory for rows that are loaded.
        num_bytes: End of its last tensor, at a multiple of 2 MiB.
        num_reserved: Bytes of the disk that its tensors take.
        is_cached: Whether rows pass through the system's cache, because the folder's file system allows
            no other way.
    """

    descriptor = direct = -1

    def __init__(self, folder: Path) -> None:
        """Make the file; raises OptionError if the folder does not take one."""
        if not hasattr(_libc, "sync_file_range"):
            raise OptionError("needs Linux", option="weights_in", value="disk")
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                self.descriptor = os.dup(file.fileno())
        except OSError as error:
            raise OptionError(
                f"must be a folder that takes files, for weights on a disk: {error.strerror or error}",
                place=folder,
            ) from None
        self.direct = _direct(self.descriptor)
        self.is_cached = self.direct < 0
        self.folder, self.lock = folder, Lock()
        self.num_bytes = self.num_reserved = 0
        self.queue = None if self.is_cached else _queue()
        self.threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="scratch")
        self.rooms = Rooms()

    def __del__(self) -> None:
        """Close the file; the mapped memory of its tensors keeps it."""
        for descriptor in (self.descriptor, self.direct):
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
        size = -(-num_bytes // PAGE_BYTES) * PAGE_BYTES
        with self.lock:
            offset = self.num_bytes
            self.num_bytes += -(-size // _BEGINNING) * _BEGINNING
            self.num_reserved += size
            wanted = self.num_reserved
        try:
            os.posix_fallocate(self.descriptor, offset, size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise CapacityError(
                f"has no room for {wanted:,} bytes of weights and optimizer state", place=self.folder
            ) from None
        room = size + (_BEGINNING if size >= _BEGINNING else 0)
        memory = _Memory(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNRESERVED)
        first = -torch.frombuffer(memory, dtype=torch.uint8).data_ptr() % _BEGINNING if room > size else 0
        tensor = torch.frombuffer(memory, dtype=dtype, count=math.prod(shape), offset=first)
        region = _Region(tensor.data_ptr(), size, offset, self)
        region.map(0, size)
        memory.start = region.start
        _regions[memory.start] = region
        return tensor.view(*shape)

    def write_out(self, offset: int, size: int) -> None:
        """Write what the system's cache has of a part of the file, and drop it from there."""
        place = ctypes.c_int64(offset), ctypes.c_int64(size)
        if _libc.sync_file_range(self.descriptor, *place, ctypes.c_uint(_WRITE_AND_WAIT)):
            raise self.failure(ctypes.get_errno())
        os.posix_fadvise(self.descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def start(self, writes: bool, address: int, offset: int, size: int, then: Then) -> None:
        """Begin to read or write a part of the file past the system's cache, from or into memory.

        Args:
            writes: Whether to write.
            address: Beginning of the memory, and the others, in whole pages.
            offset: Beginning of the part.
            size: Its bytes.
            then: Called with a CapacityError if the disk fails.
        """

        def finish(done: int) -> None:
            """Move what the kernel's queue has not moved: everything if it takes nothing."""
            try:
                if done < 0:
                    raise self.failure(-done)
                self._move(writes, address + done, offset + done, size - done)
            except Exception as error:
                then(error)
            else:
                then(None)

        if self.queue is None:
            self.threads.submit(finish, 0)
        elif not self.queue.start(writes, self.direct, address, offset, size, finish):
            finish(0)

    def _move(self, writes: bool, address: int, offset: int, size: int) -> None:
        call, done = os.pwritev if writes else os.preadv, 0
        while done < size:
            memory = (ctypes.c_char * (size - done)).from_address(address + done)
            try:
                moved = call(self.descriptor if self.is_cached else self.direct, [memory], offset + done)
            except OSError as error:
                raise self.failure(error.errno or 0) from None
            if not moved:
                raise self.failure(errno.EIO)
            done += moved
        if self.is_cached and size:
            self.write_out(offset, size)

    def failure(self, number: int) -> CapacityError:
        """Return the error of a disk that fails, from the system's number of it."""
        return CapacityError(
            f"does not keep the weights that are to lie there: {os.strerror(number)}", place=self.folder
        )


@dataclass(frozen=True)
class _Region:
    """The memory of a tensor, and its place in the file, in whole pages."""

    start: int
    size: int
    offset: int
    file: Scratch

    def pages(self, tensor: Tensor) -> tuple[int, int]:
        """Return the first byte of a contiguous view's pages in the region, and their bytes.

        A page that also holds the row after the last one does not count, unless this is the last row of all.
        """
        first = tensor.data_ptr() - self.start
        last = first + tensor.numel() * tensor.element_size()
        start = first // PAGE_BYTES * PAGE_BYTES
        stop = self.size if last > self.size - PAGE_BYTES else last // PAGE_BYTES * PAGE_BYTES
        return start, stop - start

    def map(self, start: int, size: int, flag: int = _FIXED) -> None:
        """Map a part of the file, from a first byte of the region on.

        Args:
            start: The byte.
            size: Bytes of the part.
            flag: Whether it takes the place of what is mapped there, or only a free one.

        Raises:
            CapacityError: The system maps no more memory, or the place is not free.
        """
        place = self.file.descriptor, self.offset + start
        map_memory(self.start + start, size, mmap.MAP_SHARED | flag, *place)


_regions: dict[int, _Region] = {}
"""The memory of tensors in files, by address."""


class _Memory(mmap.mmap):
    """Addresses of a tensor, which end with it."""

    start = 0

    def __del__(self) -> None:
        """Forget the tensor."""
        _regions.pop(self.start, None)


def scratch_of(tensor: Tensor) -> Scratch | None:
    """Return the file of a tensor; None if it is in memory."""
    region = _region_of(tensor)
    return None if region is None else region.file


def load(tensor: Tensor, then: Then) -> None:
    """Begin to read rows from their file into memory of their own; they stay at their address.

    Args:
        tensor: Some rows of a tensor in a file, contiguous. They begin and end with pages, or end the tensor.
        then: Called when they are there, or with a CapacityError if the disk or the memory fails.
    """
    region = _region_of(tensor)
    assert region is not None
    start, size = region.pages(tensor)
    rooms = region.file.rooms

    def lend(error: Exception | None, _memory: Tensor = tensor) -> None:  # which stays until then
        if error is None:
            try:
                rooms.lend(room, region.start + start, size)
            except CapacityError as full:
                error = full
                with suppress(CapacityError):  # a move may fail after it has unmapped its target
                    region.map(start, size, _FIXED_AND_FREE)
        if error is not None:
            rooms.give(room)
        then(error)

    try:
        room = rooms.take(size)
    except CapacityError as full:
        then(full)
    else:
        region.file.start(False, room[0], region.offset + start, size, lend)


def store(tensor: Tensor, writes: bool, then: Then) -> None:
    """Begin to give back the memory of rows that `load` has read, which happens even if the disk fails.

    Args:
        tensor: The rows.
        writes: Whether to write them to the file before.
        then: Called when the memory is back, with a CapacityError if the disk has failed.
    """
    region = _region_of(tensor)
    assert region is not None
    start, size = region.pages(tensor)
    address, offset = region.start + start, region.offset + start

    def bring_back(error: Exception | None, _memory: Tensor = tensor) -> None:  # which stays until then
        region.file.rooms.bring_back(address, size)
        try:
            region.map(start, size)
        except CapacityError as full:
            error = error or full
        then(error)

    if writes:
        region.file.start(True, address, offset, size, bring_back)
    else:
        bring_back(None)


def fetch_rows(tensor_RH: Tensor, rows_U: Tensor) -> None:
    """Begin to read some rows of a contiguous tensor, int64 [U], ascending, into the system's cache."""
    region = _region_of(tensor_RH)
    if region is None or not len(rows_U):
        return
    # The kernel would read megabytes around each page that it has dropped again for want of memory.
    _advise(region, *region.pages(tensor_RH), _RANDOM)
    row_bytes = tensor_RH[0].numel() * tensor_RH.element_size()
    first = (rows_U.numpy() * row_bytes + tensor_RH.data_ptr() - region.start) // PAGE_BYTES
    last = (rows_U.numpy() * row_bytes + tensor_RH.data_ptr() - region.start + row_bytes - 1) // PAGE_BYTES
    begins = np.flatnonzero(np.concatenate([[True], first[1:] > last[:-1] + 1]))
    stops = last[np.concatenate([begins[1:], [len(first)]]) - 1] + 1
    for start, stop in zip(first[begins].tolist(), stops.tolist(), strict=True):
        place = region.offset + start * PAGE_BYTES, (stop - start) * PAGE_BYTES
        os.posix_fadvise(region.file.descriptor, *place, os.POSIX_FADV_WILLNEED)


def read_around(tensor: Tensor) -> None:
    """Let the kernel read more than the page that is asked for, since all rows follow in order.

    It does so until `fetch_rows` asks for rows of the whole tensor.

    Args:
        tensor: A contiguous tensor, or a view of some of its rows.
    """
    region = _region_of(tensor)
    if region is not None:
        _advise(region, *region.pages(tensor), _NORMAL)


def release(tensor: Tensor) -> None:
    """Write a contiguous tensor, or a view of some of its rows, to its file, and drop it from the cache.

    A page that also holds the row after the last one stays, unless this is the last row of all.

    Raises:
        CapacityError: The disk fails.
    """
    region = _region_of(tensor)
    if region is not None:
        unmap(tensor)
        start, size = region.pages(tensor)
        if size > 0:
            region.file.write_out(region.offset + start, size)


def unmap(tensor: Tensor) -> None:
    """Let the kernel write a contiguous tensor to its file and free its memory when it likes."""
    region = _region_of(tensor)
    if region is not None:
        start, size = region.pages(tensor)
        _advise(region, start, size, _DO_NOT_NEED)


def _advise(region: _Region, start: int, size: int, advice: int) -> None:
    if size > 0:
        _libc.madvise(ctypes.c_void_p(region.start + start), ctypes.c_size_t(size), ctypes.c_int(advice))


def _region_of(tensor: Tensor) -> _Region | None:
    if not _regions or tensor.device.type != "cpu":
        return None
    return _regions.get(tensor.untyped_storage().data_ptr())


def _queue() -> KernelQueue | None:
    """Return a queue of the kernel, if it has one."""
    try:
        return KernelQueue()
    except OSError:
        return None


def _direct(descriptor: int) -> int:
    """Open a new file again, to read and write it past the system's cache; -1 if that is not possible."""
    try:
        direct = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_DIRECT)
    except OSError:
        return -1
    try:
        os.pwritev(direct, [mmap.mmap(-1, PAGE_BYTES)], 0)
    except OSError:
        os.close(direct)
        return -1
    return direct
