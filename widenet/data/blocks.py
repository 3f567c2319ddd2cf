"""Digests of a dataset's files and of their blocks, compared before the bytes are used."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from widenet.data.manifest import FILE_NAME, Blocks, File, sha256_of
from widenet.errors import DataError

BLOCK_BYTES = 2**20
"""Size of a block. A row is checked with its whole block, but the manifest lists every block."""

_RULE = f"must have the SHA-256 of {FILE_NAME}; it changed."


def described(path: Path, num_rows: int, bodies: Sequence[tuple[int, int]] | None = None) -> File:
    """Describe a file for the manifest, reading it once.

    Args:
        path: The file.
        num_rows: Number of its rows.
        bodies: For example files, the byte ranges of record batches; see `Blocks`.
    """
    if bodies is None:
        return File(size_bytes=path.stat().st_size, sha256=sha256_of(path), num_rows=num_rows)
    whole, blocks = hashlib.sha256(), []
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            whole.update(block)
            blocks.append(hashlib.sha256(block).hexdigest())
    size = path.stat().st_size
    outside = _sha256_outside(pa.memory_map(str(path)), size, bodies)
    parts = Blocks(size_bytes=BLOCK_BYTES, sha256=blocks, bodies=list(bodies), sha256_outside_bodies=outside)
    return File(size_bytes=size, sha256=whole.hexdigest(), num_rows=num_rows, blocks=parts)


class CheckedFile:
    """Checks the blocks of an example file against the manifest, each before its first use.

    Everything that Arrow reads on opening the file (schema, headers, footer) is checked at once; so is the
    whole of a file without digests of blocks, from format 1.

    Raises:
        DataError: Bytes differ; the message names the file and the block.
    """

    def __init__(self, path: Path, stated: File) -> None:
        self.path = path
        self._blocks = stated.blocks
        self._size = stated.size_bytes
        # Not a memory map: an error of the disk would then end the process.
        self._file = pa.OSFile(str(path), "rb")
        DataError.require(
            self._file.size() == stated.size_bytes,
            f"{path}: must have {stated.size_bytes:,} bytes; got {self._file.size():,}.",
        )
        self._pending = np.ones(0 if self._blocks is None else len(self._blocks.sha256), dtype=bool)
        if self._blocks is None:
            check_whole(path, stated)
        else:
            outside = _sha256_outside(self._file, self._size, self._blocks.bodies)
            DataError.require(
                outside == self._blocks.sha256_outside_bodies,
                f"{path}: all that describes its rows (schema, headers, footer) {_RULE}",
            )

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
            self._check_block(block, size, self._blocks.sha256[block])

    def _check_block(self, block: int, size: int, sha256: str) -> None:
        start = block * size
        stop = min(start + size, self._size)
        DataError.require(
            hashlib.sha256(_read(self._file, self.path, start, stop)).hexdigest() == sha256,
            f"{self.path}: block {block} (bytes {start:,} to {stop - 1:,}) {_RULE}",
        )
        self._pending[block] = False


def check_whole(path: Path, stated: File) -> None:
    """Check a whole file against its SHA-256; raises DataError that names the first wrong block, if known."""
    try:
        actual = sha256_of(path)
    except OSError as error:
        raise _unreadable(path, error) from None
    if actual != stated.sha256:
        if stated.blocks is not None:
            blocks = CheckedFile(path, stated)
            blocks.check(np.array([0]), np.array([stated.size_bytes]))
        raise DataError(f"{path}: {_RULE}")


def _read(file: pa.NativeFile, path: Path, start: int, stop: int) -> bytes:
    try:
        data: bytes = file.read_at(stop - start, start)
    except OSError as error:
        raise _unreadable(path, error) from None
    return data


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read ({error}).")


def _sha256_outside(file: pa.NativeFile, size: int, bodies: Sequence[tuple[int, int]]) -> str:
    """The digest of the bytes of a file outside all bodies."""
    digest, end = hashlib.sha256(), 0
    for start, stop in [*bodies, (size, size)]:
        if start > end:
            digest.update(file.read_at(start - end, end))
        end = stop
    return digest.hexdigest()
