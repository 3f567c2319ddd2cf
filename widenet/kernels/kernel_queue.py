"""The kernel's queue of reads and writes past its cache, which nobody waits for one by one."""

import ctypes
import errno
import os
import platform
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Lock

_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""Linux's numbers of `io_setup`, `io_destroy`, `io_getevents` and `io_submit`, by processor."""

_DEPTH = 256
_libc = ctypes.CDLL(None, use_errno=True)


class _Request(ctypes.Structure):
    """Linux's `struct iocb` of processors whose lowest byte comes first."""

    _fields_ = (
        ("number", ctypes.c_uint64),
        ("_key_and_flags", ctypes.c_uint64),
        ("writes", ctypes.c_uint16),
        ("_priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("num_bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("_more", ctypes.c_uint64 * 2),
    )


class _Event(ctypes.Structure):
    """Linux's `struct io_event`."""

    _fields_ = (
        ("number", ctypes.c_uint64),
        ("_request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("_more", ctypes.c_int64),
    )


class KernelQueue:
    """A queue of Linux's asynchronous reads and writes (AIO).

    One thread takes all results that there are. Were there a thread for each request, they would hand
    Python's lock to each other, on processors that compute, while the disk has nothing to do.
    """

    def __init__(self) -> None:
        """Make a queue; raises OSError where the system has none."""
        numbers = _NUMBERS.get(platform.machine())
        if numbers is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._setup, self._destroy, self._results, self._submit = numbers
        self._context = ctypes.c_ulong()
        self._call(self._setup, _DEPTH, ctypes.addressof(self._context))
        self._taker = ThreadPoolExecutor(1, thread_name_prefix="scratch")
        self._numbers, self._lock = count(), Lock()
        self._then: dict[int, Callable[[int], None]] = {}
        self._under_way = 0

    def start(
        self, writes: bool, descriptor: int, address: int, offset: int, size: int, then: Callable[[int], None]
    ) -> bool:
        """Begin to read or write a part of a file.

        Args:
            writes: Whether to write.
            descriptor: The file, opened with `O_DIRECT`.
            address: Beginning of the memory, which must stay until the end.
            offset: Beginning of the part.
            size: Its bytes.
            then: Called in another thread with the bytes moved, or less than zero: the system's number of an
                error.

        Returns:
            Whether the queue takes it.
        """
        with self._lock:
            number = next(self._numbers)
            request = ctypes.pointer(_Request(number, 0, writes, 0, descriptor, address, size, offset))
            self._then[number] = then
            try:
                self._call(self._submit, self._context.value, 1, ctypes.addressof(request))
            except OSError:
                del self._then[number]
                return False
            self._under_way += 1
            if self._under_way == 1:
                self._taker.submit(self._take)
        return True

    def _take(self) -> None:
        """Take results until nothing is under way."""
        events = (_Event * _DEPTH)()
        while True:
            try:
                num = self._call(self._results, self._context.value, 1, _DEPTH, ctypes.addressof(events), 0)
            except InterruptedError:
                continue
            # Those who wait for the oldest request wake last: awake, they would take Python's lock from
            # this thread before it has begun what follows the others.
            for event in reversed(events[:num]):
                try:
                    self._then.pop(event.number)(event.result)
                except Exception:  # without this thread, nobody would take the other results
                    traceback.print_exc()
            with self._lock:
                self._under_way -= num
                if not self._under_way:
                    return

    def _call(self, *arguments: int) -> int:
        done = _libc.syscall(*map(ctypes.c_long, arguments))
        if done < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return int(done)

    def __del__(self) -> None:
        """Give the queue back, in which nothing is under way."""
        if hasattr(self, "_taker"):
            _libc.syscall(ctypes.c_long(self._destroy), self._context)
