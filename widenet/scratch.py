"""Tensors in a file on a disk, mapped into memory: fetched before their use, and let go of afterwards.

The kernel moves the pages between memory and the file. `fetch`, `release` and their kin tell it when; they
change which rows are in memory, never a number, and do nothing for other tensors.
"""

import ctypes
import errno
import math
import mmap
import os
import tempfile
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.errors import CapacityError, OptionError

MOST_RELEASING = 4
"""Parts of tensors that are written behind at the same time; a fifth waits."""

_READERS = 16
_PAGE = mmap.PAGESIZE
_BEGINNING = 2**21
"""A tensor begins at a multiple of this in its file, so that the kernel can use large pages."""
_WILL_NEED, _DO_NOT_NEED, _POPULATE_FOR_READING, _POPULATE_FOR_WRITING = 3, 4, 22, 23
_WRITE_AND_WAIT = 7
"""Linux's numbers of advice to `madvise`, and the flags of `sync_file_range`."""
_libc = ctypes.CDLL(None, use_errno=True)


class Scratch:
    """A file without a name in a folder: it is gone when the process ends, however it ends."""

    descriptor = -1

    def __init__(self, folder: Path) -> None:
        """Make the file; raises OptionError if the folder does not take one."""
        if not hasattr(_libc, "sync_file_range"):
            raise OptionError("`weights_in='disk'` needs Linux. Train without it.")
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                self.descriptor = os.dup(file.fileno())
        except OSError as error:
            raise OptionError(
                f"{folder} must be a folder that takes files, for weights on a disk:"
                f" {error.strerror or error}. Name another folder with `scratch`."
            ) from None
        self.folder, self.num_bytes, self.lock = folder, 0, Lock()
        self.readers = ThreadPoolExecutor(_READERS, thread_name_prefix="read-ahead")
        self.writers = ThreadPoolExecutor(MOST_RELEASING, thread_name_prefix="write-behind")
        self.releasing: deque[Future[None]] = deque()

    def __del__(self) -> None:
        """Close the file; its tensors keep it open."""
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def zeros(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return a tensor of zeros in the file; its place on the disk is reserved at once.

        Raises:
            CapacityError: The disk has no room for it.
        """
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return torch.zeros(*shape, dtype=dtype)
        with self.lock:
            offset = self.num_bytes
            self.num_bytes += -(-size // _BEGINNING) * _BEGINNING
        try:
            os.posix_fallocate(self.descriptor, offset, size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise CapacityError(
                f"{self.folder} has no room for {offset + size:,} bytes of weights and optimizer state. Free"
                " some space, or name a folder on another disk with `scratch`."
            ) from None
        mapping = _Mapping(self.descriptor, size, offset=offset)
        tensor = torch.frombuffer(mapping, dtype=dtype)
        mapping.region = _Region(tensor.data_ptr(), size, offset, self)
        with _lock:
            insort(_regions, mapping.region)
        return tensor.view(*shape)

    def wait(self, most: int = 0) -> None:
        """Wait until at most so many parts are still being written; raises CapacityError if one cannot be."""
        while len(self.releasing) > most:
            try:
                future = self.releasing.popleft()
            except IndexError:  # another thread waits for the last one
                return
            future.result()


@dataclass(order=True)
class _Region:
    """The memory of a tensor, and its place in the file."""

    start: int
    size: int
    offset: int
    file: Scratch | None = field(compare=False)
    """None after the tensor's end: the region stays in the list of regions, and must not keep the file."""

    @property
    def scratch(self) -> Scratch:
        """The file of a tensor that lives."""
        assert self.file is not None
        return self.file

    def pages(self, tensor: Tensor, outward: bool) -> tuple[int, int]:
        """Return the first byte of a contiguous view's pages in the region, and their bytes.

        Args:
            tensor: The view.
            outward: Whether its last page counts if the view covers only its beginning.
        """
        first = tensor.data_ptr() - self.start
        last = first + tensor.numel() * tensor.element_size()
        outward = outward or last == self.size
        start = first // _PAGE * _PAGE
        return start, (-(-last // _PAGE) if outward else last // _PAGE) * _PAGE - start


class _Mapping(mmap.mmap):
    """A part of a file in memory, which ends with its last tensor."""

    region: _Region | None = None

    def __del__(self) -> None:
        """Note the end; this may come in the midst of anything, so that only a lookup removes the region."""
        if self.region is not None:
            self.region.file = None
            _ended.append(self.region)


_regions: list[_Region] = []
"""The memory of tensors in files, by address."""
_ended: deque[_Region] = deque()
"""Those of them that have ended since the last lookup."""
_lock = Lock()


def scratch_of(tensor: Tensor) -> Scratch | None:
    """Return the file of a tensor; None if it is in memory."""
    region = _region_of(tensor)
    return None if region is None else region.scratch


def fetch(tensor: Tensor, writes: bool = False) -> None:
    """Wait until a contiguous tensor is in memory.

    Args:
        tensor: The tensor, or a view of some of its rows.
        writes: Whether all of it is written next.
    """
    region = _region_of(tensor)
    if region is None:
        return
    start, size = region.pages(tensor, outward=True)
    if not _advise(region.start + start, size, _POPULATE_FOR_WRITING if writes else _POPULATE_FOR_READING):
        _advise(region.start + start, size, _WILL_NEED)


def fetch_rows(tensor_RH: Tensor, rows_U: Tensor) -> None:
    """Begin to read some rows of a contiguous tensor, int64 [U], ascending."""
    region = _region_of(tensor_RH)
    if region is None or not len(rows_U):
        return
    row_bytes = tensor_RH[0].numel() * tensor_RH.element_size()
    first = (rows_U.numpy() * row_bytes + tensor_RH.data_ptr() - region.start) // _PAGE
    last = (rows_U.numpy() * row_bytes + tensor_RH.data_ptr() - region.start + row_bytes - 1) // _PAGE
    begins = np.flatnonzero(np.concatenate([[True], first[1:] > last[:-1] + 1]))
    stops = last[np.concatenate([begins[1:], [len(first)]]) - 1] + 1
    descriptor = region.scratch.descriptor
    for start, stop in zip(first[begins].tolist(), stops.tolist(), strict=True):
        os.posix_fadvise(
            descriptor, region.offset + start * _PAGE, (stop - start) * _PAGE, os.POSIX_FADV_WILLNEED
        )


def release(tensor: Tensor) -> None:
    """Write a contiguous tensor, or a view of some of its rows, to its file and free its memory.

    A page that also holds the row after the last one stays, unless this is the last row of all.

    Raises:
        CapacityError: The disk does not take it.
    """
    region = _region_of(tensor)
    if region is None:
        return
    (start, size), descriptor = region.pages(tensor, outward=False), region.scratch.descriptor
    if size <= 0:
        return
    _advise(region.start + start, size, _DO_NOT_NEED)
    place = ctypes.c_int64(region.offset + start), ctypes.c_int64(size)
    if _libc.sync_file_range(descriptor, *place, ctypes.c_uint(_WRITE_AND_WAIT)):
        raise CapacityError(
            f"{region.scratch.folder} does not take the weights that are to lie there:"
            f" {os.strerror(ctypes.get_errno())}. Resume with another folder in `scratch`."
        )
    os.posix_fadvise(descriptor, region.offset + start, size, os.POSIX_FADV_DONTNEED)


def finish_releasing(tensor: Tensor) -> None:
    """Wait until all that was released of a tensor's file is written; raises CapacityError if it is not."""
    scratch = scratch_of(tensor)
    if scratch is not None:
        scratch.wait()


def unmap(tensor: Tensor) -> None:
    """Let the kernel write a contiguous tensor to its file and free its memory when it likes."""
    region = _region_of(tensor)
    if region is not None:
        start, size = region.pages(tensor, outward=False)
        _advise(region.start + start, size, _DO_NOT_NEED)


def _region_of(tensor: Tensor) -> _Region | None:
    if not _regions or tensor.device.type != "cpu" or not tensor.numel():
        return None
    address = tensor.data_ptr()
    with _lock:
        while _ended:
            _regions.remove(_ended.popleft())
        place = bisect_right(_regions, address, key=lambda region: region.start) - 1
        region = _regions[place] if place >= 0 else None
    return region if region is not None and address < region.start + region.size else None


def _advise(address: int, size: int, advice: int) -> bool:
    arguments: tuple[Any, ...] = ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_int(advice)
    return bool(_libc.madvise(*arguments) == 0)
