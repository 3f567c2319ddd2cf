"""Digests of a dataset's files and of their blocks, compared before the bytes are used."""

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet.data.manifest import FILE_NAME, Blocks, File, sha256_of
from widenet.errors import DataError

BLOCK_BYTES = 2**20
"""Size of a block. A row is checked with its whole block, but the manifest lists every block."""

_RULE = f"must have the SHA-256 of {FILE_NAME}; it changed."


def described(path: Path, num_rows: int, bodies: Sequence[tuple[int, int]] | None = None) -> File:
    """Describe a file for the manifest.

    Args:
        path: The file.
        num_rows: Number of its rows.
        bodies: For example files, the byte ranges of record batches; see `Blocks`.
    """
    size, sha256 = path.stat().st_size, sha256_of(path)
    if bodies is None:
        return File(size_bytes=size, sha256=sha256, num_rows=num_rows)
    with path.open("rb") as file:
        digests = [hashlib.sha256(block).hexdigest() for block in iter(partial(file.read, BLOCK_BYTES), b"")]
    outside = _sha256_outside(pa.memory_map(str(path)), size, bodies)
    blocks = Blocks(
        size_bytes=BLOCK_BYTES, sha256=digests, bodies=list(bodies), sha256_outside_bodies=outside
    )
    return File(size_bytes=size, sha256=sha256, num_rows=num_rows, blocks=blocks)


class CheckedFile:
    """Checks the blocks of an example file against the manifest, each before its first use.

    Everything that Arrow reads on opening the file (schema, headers, footer) is checked at once; so is the
    whole of a file without digests of blocks, from format 1.

    Raises:
        DataError: Bytes differ; the message names the file and the block.
    """

    def __init__(self, path: Path, stated: File) -> None:
        self.path = path
        self._size, self._blocks = stated.size_bytes, stated.blocks
        # Not a memory map: an error of the disk would then end the process.
        self._file = pa.OSFile(str(path), "rb")
        if self._blocks is None:
            check_whole(path, stated)
            self._pending = np.zeros(0, dtype=bool)
            return
        self._pending = np.ones(len(self._blocks.sha256), dtype=bool)
        outside = _sha256_outside(self._file, self._size, self._blocks.bodies)
        is_same = outside == self._blocks.sha256_outside_bodies
        DataError.require(is_same, f"its schema, headers or footer {_RULE}", place=path)

    def check(self, starts: np.ndarray, stops: np.ndarray) -> None:
        """Check all blocks that some byte ranges touch, unless they were checked before.

        Args:
            starts: First bytes of the ranges, int64 [N].
            stops: Ends of the ranges, int64 [N].
        """
        if self._blocks is None or not self._pending.any():
            return
        size, count = self._blocks.size_bytes, len(self._pending)
        some = stops > starts
        first, after = starts[some] // size, -(-stops[some] // size)
        changes = np.bincount(first, minlength=count + 1) - np.bincount(after, minlength=count + 1)
        is_touched = np.cumsum(changes)[:count] > 0
        for block in np.flatnonzero(is_touched & self._pending).tolist():
            start, stop = block * size, min((block + 1) * size, self._size)
            try:
                digest = hashlib.sha256(self._file.read_at(stop - start, start)).hexdigest()
            except OSError as error:
                raise DataError(f"cannot be read: {error}", place=self.path) from None
            where = f"block {block} (bytes {start:,} to {stop - 1:,})"
            DataError.require(digest == self._blocks.sha256[block], f"{where} {_RULE}", place=self.path)
            self._pending[block] = False


def check_whole(path: Path, stated: File) -> None:
    """Check a whole file against its SHA-256; raises DataError that names the first wrong block, if known."""
    try:
        actual = sha256_of(path)
    except OSError as error:
        raise DataError(f"cannot be read: {error}", place=path) from None
    if actual != stated.sha256 and stated.blocks is not None:
        CheckedFile(path, stated).check(np.array([0]), np.array([stated.size_bytes]))
    DataError.require(actual == stated.sha256, _RULE, place=path)


def _sha256_outside(file: pa.NativeFile, size: int, bodies: Sequence[tuple[int, int]]) -> str:
    """The digest of the bytes of a file outside all bodies."""
    digest, end = hashlib.sha256(), 0
    for start, stop in [*bodies, (size, size)]:
        digest.update(file.read_at(start - end, end))
        end = stop
    return digest.hexdigest()
