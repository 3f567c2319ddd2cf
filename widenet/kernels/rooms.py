"""Memory at addresses of one's choice: mapped, moved there and back, and used again."""

import ctypes
import mmap
import os
from threading import Lock

from widenet.errors import CapacityError

_READ_AND_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_MOVE_TO_FIXED, _KEEP_ADDRESSES, _LARGE_PAGES = 3, 4, 14
"""Linux's numbers for `mremap` (two) and `madvise`."""
_NOWHERE = 2 ** (8 * ctypes.sizeof(ctypes.c_void_p)) - 1
_libc = ctypes.PyDLL(None, use_errno=True)
"""The C library, whose calls keep Python's lock: they are shorter than the wait for it afterwards."""
_libc.mmap.restype = _libc.mremap.restype = ctypes.c_void_p


class Rooms:
    """Memory for rows that are loaded, used again and again, since the kernel takes long to clear new memory.

    A room's memory moves to the address of the rows, and back when they are stored. Its own addresses stay
    taken meanwhile, so that nothing else gets there. Before Linux 5.7 they cannot: each room is used once.
    """

    def __init__(self) -> None:
        self._free: list[tuple[int, int]] = []
        self._lent: dict[int, tuple[int, int]] = {}
        self._lock, self._keeps = Lock(), True
        self._munmap = _libc.munmap

    def take(self, size: int) -> tuple[int, int]:
        """Return address and size of a free room of some bytes, or of a new one in place of another.

        A part of a room would not do: its large pages stay whole only if they move together.
        """
        with self._lock:
            equal = next((place for place, room in enumerate(self._free) if room[1] == size), None)
            free = self._free.pop(equal or 0) if self._free else None
        if free is not None:
            if equal is not None:
                return free
            self._end(free)
        room = map_memory(None, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), size
        _libc.madvise(ctypes.c_void_p(room[0]), ctypes.c_size_t(size), ctypes.c_int(_LARGE_PAGES))
        return room

    def give(self, room: tuple[int, int]) -> None:
        """Take a room back that was not lent."""
        with self._lock:
            self._free.append(room)

    def lend(self, room: tuple[int, int], address: int, size: int) -> None:
        """Move the memory of a room to the address of rows.

        Raises:
            CapacityError: The system maps no more memory; the room is not lent.
        """
        if self._keeps and _moved(room[0], address, size, _KEEP_ADDRESSES):
            self._lent[address] = room
            return
        if not _moved(room[0], address, size):
            raise _no_more_memory()
        self._keeps = False

    def bring_back(self, address: int, size: int) -> None:
        """Move the memory of rows back to its room, if it has one."""
        room = self._lent.pop(address, None)
        if room is None:
            return
        if _moved(address, room[0], size, _KEEP_ADDRESSES):
            self.give(room)
        else:
            self._end(room)

    def _end(self, room: tuple[int, int]) -> None:
        self._munmap(ctypes.c_void_p(room[0]), ctypes.c_size_t(room[1]))

    def __del__(self) -> None:
        """Give all memory back."""
        for room in self._free:
            self._end(room)


def map_memory(address: int | None, size: int, flags: int, descriptor: int = -1, offset: int = 0) -> int:
    """Map memory, or a part of a file, and return its address; raises CapacityError if none is free."""
    arguments = ctypes.c_void_p(address), ctypes.c_size_t(size), _READ_AND_WRITE, flags, descriptor
    found: int | None = _libc.mmap(*arguments, ctypes.c_int64(offset))
    if found is None or found == _NOWHERE:
        raise _no_more_memory()
    return found


def _moved(address: int, to: int, size: int, flags: int = 0) -> bool:
    """Move memory to another address; return whether the kernel did."""
    old, new, length = ctypes.c_void_p(address), ctypes.c_void_p(to), ctypes.c_size_t(size)
    return bool(_libc.mremap(old, length, length, _MOVE_TO_FIXED | flags, new) == to)


def _no_more_memory() -> CapacityError:
    return CapacityError(
        f"the system maps no more memory for weights on a disk: {os.strerror(ctypes.get_errno())}"
    )
