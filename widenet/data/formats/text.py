"""Files of text, plain or compressed by gzip or zstd: their lines, and copies without some of them."""

import gzip
import io
import re
import zlib
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import pyarrow as pa

from widenet.errors import DataError
from widenet.regular_files import LONGEST_LINE_BYTES

COMPRESSED = (".gz", ".zst", ".zstd")
NO_NUL = "must not hold the character NUL. Remove it, for example with `tr -d '\\0'`; UTF-16 must become UTF-8."
NO_UTF8 = "must be UTF-8 text. Convert the file, for example with `iconv -t utf-8`."

_SAMPLE_BYTES = 2**16
_PIECE_BYTES = 2**20
_SAMPLE_LINES = 100
_LINE_END = re.compile(rb"[\r\n]")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""A line with its end: `str.splitlines` would also end it where U+2028 or a form feed stands within."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class TextFile:
    """A file of text, whose first bytes tell whether it is compressed."""

    path: Path

    @property
    def compression(self) -> str:
        """DuckDB's name of the compression, or "none"."""
        with self.path.open("rb") as file:
            first = file.read(4)
        return next((name for magic, name in _MAGIC.items() if first.startswith(magic)), "none")

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The bytes, decompressed; raises DataError where they are cut off or damaged."""
        compression = self.compression
        if compression == "none":
            with self.path.open("rb") as plain:
                yield plain
            return
        try:
            if compression == "gzip":
                with gzip.open(self.path, "rb") as file:
                    yield io.BufferedReader(file)
            else:
                with pa.CompressedInputStream(pa.OSFile(str(self.path)), "zstd") as stream:
                    yield io.BufferedReader(stream)
        except (EOFError, OSError, zlib.error) as error:
            if getattr(error, "errno", None) is not None:  # it is not about the bytes, but of the disk
                raise
            raise DataError(f"{self.path}: must be a whole file of {compression}; {error}. Fetch or compress it again.") from error

    def lines(self) -> Iterator[str]:
        """The lines with their ends; bytes that are no UTF-8 become U+FFFD."""
        with self.opened() as file, io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="\n") as text:
            yield from text

    def check_end(self, num_bytes: int) -> None:
        """Raise DataError where the last line is longer (num_bytes: up to LONGEST_LINE_BYTES): DuckDB would leave it out without a word."""
        if self._last_line_bytes > num_bytes:
            raise DataError(
                f"{self.path}: the last line must have at most {num_bytes:,} bytes; it is longer. Close its quotes, or part it."
            )

    @cached_property
    def _last_line_bytes(self) -> int:
        """How long the last line is, as far as that is below the limit: of a plain file only the end is read, a compressed one whole."""
        length, has_ended = 0, False
        with self.opened() as file:
            if self.compression == "none":
                file.seek(max(0, file.seek(0, io.SEEK_END) - LONGEST_LINE_BYTES - _PIECE_BYTES))
            while piece := file.read(_PIECE_BYTES):
                text = piece.rstrip(b"\r\n")
                if text:
                    start = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
                    length = len(text) - start + (0 if start or has_ended else length)
                    has_ended = False
                has_ended = has_ended or len(text) < len(piece)
        return length

    def sample(self) -> list[str]:
        """The first lines, the first one whole however long it is; not the last one where it is cut off."""
        with self.opened() as file:
            found = file.read(_SAMPLE_BYTES)
            if not _LINE_END.search(found):
                found += file.readline(LONGEST_LINE_BYTES)
            is_whole = not file.read(1)
        lines = _LINE.findall(found.decode("utf-8-sig", "replace"))
        return (lines if is_whole or len(lines) == 1 else lines[:-1])[:_SAMPLE_LINES]

    def without(self, numbers: Container[int], copy: Path) -> "TextFile":
        """A copy in which the lines of these numbers, counted from 1, are empty."""
        with self.opened() as file, copy.open("wb") as kept:
            kept.writelines(b"\n" if number in numbers else line for number, line in enumerate(file, start=1))
        return TextFile(copy)
