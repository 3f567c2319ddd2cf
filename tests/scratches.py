"""What the tests of tensors in files ask the kernel, and how disks and kernels fail."""

import ctypes
import errno
import mmap
import os
import re
from concurrent.futures import Future
from pathlib import Path

import torch


def now(begin, *arguments):
    """Wait for what `load` or `store` begins."""
    done = Future()
    begin(*arguments, done.set_result)
    error = done.result()
    if error is not None:
        raise error


def resident(tensor):
    """The bytes of a tensor's memory, mapped in several parts, that are there as the kernel counts them."""
    first = tensor.data_ptr()
    stop = first + tensor.numel() * tensor.element_size()
    maps = re.findall(r"^(\w+)-\w+ .*?^Rss: +(\d+) kB", Path("/proc/self/smaps").read_text(), re.M | re.S)
    return sum(1024 * int(size) for start, size in maps if first <= int(start, 16) < stop)


def stored(file, tensor, offset=0):
    """The numbers of the file itself, as the system reads them."""
    data = os.pread(file.descriptor, tensor.numel() * 4, offset)
    return torch.frombuffer(bytearray(data), dtype=torch.float32).view(tensor.shape)


def cached(file, tensor, offset=0):
    """The bytes of the system's cache for a part of the file, as mincore(2) counts them."""
    size = tensor.numel() * tensor.element_size()
    with mmap.mmap(file.descriptor, offset + size) as whole:
        beginning = (ctypes.c_char * 1).from_buffer(whole)
        pages = (ctypes.c_ubyte * -(-(offset + size) // 4096))()
        assert ctypes.CDLL(None).mincore(ctypes.byref(beginning), ctypes.c_size_t(offset + size), pages) == 0
        del beginning
    return 4096 * sum(page & 1 for page in pages[offset // 4096 :])


def refuse_direct(monkeypatch):
    """Make every file system one that has no way past the system's cache."""
    opened = os.open

    def refusing(path, flags, *more):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return opened(path, flags, *more)

    monkeypatch.setattr(os, "open", refusing)


def fail(file, monkeypatch, writes, *places):
    """Let a file fail to read or write, everywhere or between two places."""
    moved = os.pwritev if writes else os.preadv

    def failing(descriptor, memory, offset):
        if not places or places[0] <= offset < places[1]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return moved(descriptor, memory, offset)

    def start(writing, descriptor, address, offset, size, then):
        if writing == writes and (not places or places[0] <= offset < places[1]):
            then(-errno.EIO)
            return True
        return begin(writing, descriptor, address, offset, size, then)

    monkeypatch.setattr(os, "pwritev" if writes else "preadv", failing)
    if file.queue is not None:
        begin = file.queue.start
        monkeypatch.setattr(file.queue, "start", start)


def is_mapped(tensor):
    """Whether the first byte of a tensor is mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    ranges = ([int(end, 16) for end in line.split()[0].split("-")] for line in lines)
    return any(start <= tensor.data_ptr() < stop for start, stop in ranges)


class Failing:
    """The C library, of which writing and moving of memory fail."""

    def __init__(self, library, unmaps=False):
        self.unmaps = unmaps
        self.madvise = library.madvise
        self.mmap, self.munmap = (getattr(library, name, None) for name in ("mmap", "munmap"))

    def mremap(self, _old, size, _new_size, _flags, new):
        if self.unmaps:
            self.munmap(new, size)

    def sync_file_range(self, *_):
        return -1
