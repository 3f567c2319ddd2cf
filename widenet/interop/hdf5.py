"""Checks of HDF5 files: they may not name other files, nor make HDF5 loop for ever."""

import os
import re
from collections.abc import Iterator
from typing import IO, Any

import h5py

HDF5 = b"\x89HDF\r\n\x1a\n"
"""How HDF5 begins."""
_HEAP = re.compile(rb"GCOL\x01\0\0\0")
_HEAD_BYTES = 16
"""Bytes of the head of a heap, and of each object in it."""
_BLOCK_BYTES = 2**24


def check_heaps(file: IO[bytes]) -> None:
    """Raise OSError if a global heap is damaged: over free space without a size, HDF5 would loop forever.

    Global heaps hold texts of variable length. Their layout is that of "Disk Format: Level 1E" in the HDF5
    File Format Specification. They lie in the file one after the other, and so do the objects in them.

    Args:
        file: An HDF5 file; read to its end.
    """
    size, lengths, end = file.seek(0, os.SEEK_END), _bytes_of_a_length(file), 0
    for start in _heaps(file):
        is_inside_another = start < end
        file.seek(start + 8)
        end = start + int.from_bytes(file.read(lengths), "little")
        if is_inside_another or end > size:
            raise OSError("a heap of texts is damaged")
        _check_objects(file, start + _HEAD_BYTES, end, lengths)


def _check_objects(file: IO[bytes], place: int, end: int, lengths: int) -> None:
    while place + _HEAD_BYTES <= end:
        file.seek(place)
        head = file.read(_HEAD_BYTES)
        index, size = int.from_bytes(head[:2], "little"), int.from_bytes(head[8 : 8 + lengths], "little")
        length = size if index == 0 else _HEAD_BYTES + -(-size // 8) * 8
        if length < _HEAD_BYTES or place + length > end:
            raise OSError("a heap of texts is damaged")
        place += length


def _bytes_of_a_length(file: IO[bytes]) -> int:
    """Return how many bytes a length takes, by the superblock, which is at 0, 512, 1024, 2048 and so on."""
    size, place = file.seek(0, os.SEEK_END), 0
    while place < size:
        file.seek(place)
        if file.read(8) == HDF5:
            head = file.read(8)
            return head[6 if head[:1] in (b"\0", b"\1") else 2]
        place = max(512, 2 * place)
    raise OSError("it has no superblock")


def _heaps(file: IO[bytes]) -> Iterator[int]:
    """Yield the places of the global heaps; a block overlaps the one before it by the length of a name."""
    overlap, start = 7, 0
    while True:
        file.seek(start)
        block = file.read(_BLOCK_BYTES)
        for match in _HEAP.finditer(block):
            yield start + match.start()
        if len(block) < _BLOCK_BYTES:
            return
        start += len(block) - overlap


def outside(file: Any) -> str | None:
    """Return the first name in an open `h5py.File` that stands for something in another file, if any.

    Such names are links to other files, and numbers that another file holds. Nothing of them is opened.
    """
    linked: str | None = file.visititems_links(
        lambda name, link: name if isinstance(link, h5py.ExternalLink) else None
    )
    return linked or file.visititems(lambda name, item: name if _is_outside(item) else None)


def _is_outside(item: Any) -> bool:
    return isinstance(item, h5py.Dataset) and bool(item.external or item.is_virtual)
