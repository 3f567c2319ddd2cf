"""Text files, plain or compressed with gzip or zstd: their lines, and copies without some of them."""

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
NO_NUL = "must not hold the character NUL."
NO_UTF8 = "must be UTF-8 text."

WHITE_SPACE = r"\s+"
"""The delimiter for any run of spaces and tabs, as in pandas."""

_SAMPLE_BYTES = 2**16
_BLOCK_BYTES = 2**20
_SAMPLE_LINES = 100
_ENDLESS_BYTES = 2**26
"""Number of bytes without a line end after which reading stops."""
_LINE_END = re.compile(rb"[\r\n]")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""A line with its end. `str.splitlines` would also end it at U+2028 or a form feed."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class TextFile:
    """A text file; its first bytes tell whether it is compressed.

    Attributes:
        path: The file.
        name: Name in messages; None means the path.
    """

    path: Path
    name: str | None = None

    @property
    def shown(self) -> str:
        """Name of the file in messages."""
        return self.name or str(self.path)

    @property
    def compression(self) -> str:
        """DuckDB's name of the compression, or "none"."""
        with self.path.open("rb") as file:
            first = file.read(4)
        return next((name for magic, name in _MAGIC.items() if first.startswith(magic)), "none")

    @contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the decompressed bytes; raises DataError if they are cut off or damaged."""
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
            if getattr(error, "errno", None) is not None:  # the disk failed; the bytes may be right
                raise
            raise DataError(f"{self.shown}: must be a complete {compression} file; {error}.") from error

    def lines(self) -> Iterator[str]:
        """Yield the lines with their ends; what is not UTF-8 makes them no text, see `is_utf8`."""
        with (
            self.opened() as file,
            io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="\n") as text,
        ):
            yield from text

    def check_end(self, num_bytes: int) -> None:
        """Raise DataError if the last line is longer than `num_bytes`, because DuckDB would skip it silently.

        Args:
            num_bytes: Largest length, up to LONGEST_LINE_BYTES.
        """
        if self._survey.last_line_bytes > num_bytes:
            raise DataError(f"{self.shown}: the last line must have at most {num_bytes:,} bytes.")

    def with_even_ends(self, folder: Path) -> "TextFile":
        """The file itself if all its lines end in LF, or all in CRLF; otherwise a copy with LF alone.

        The copy is not compressed. Line ends within quotes become LF too.

        Args:
            folder: Folder for the copy.
        """
        if self._survey.has_even_ends:
            return self
        copy = copy_in(folder)
        with self.opened() as file, copy.open("wb") as target:
            for piece in _blocks(file):
                target.write(piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        return TextFile(copy, self.shown)

    @cached_property
    def _survey(self) -> "_Survey":
        """Facts about the line ends, from one pass over the file."""
        length, has_ended = 0, False
        num_lf, num_cr, num_crlf = 0, 0, 0
        with self.opened() as file:
            for piece in _blocks(file):
                num_lf += piece.count(b"\n")
                if b"\r" in piece:
                    num_cr += piece.count(b"\r")
                    num_crlf += piece.count(b"\r\n")
                text = piece.rstrip(b"\r\n")
                if text:
                    start = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
                    length = len(text) - start + (0 if start or has_ended else length)
                    has_ended = False
                has_ended = has_ended or len(text) < len(piece)
                if length > _ENDLESS_BYTES:
                    line = max(num_lf, num_cr) + 1
                    rule = f"line {line} must have at most {LONGEST_LINE_BYTES:,} bytes"
                    raise DataError(f"{self.shown}: {rule}.")
        return _Survey(length, num_cr == 0 or num_cr == num_crlf == num_lf)

    def sample(self) -> list[str]:
        """The first lines. The first one is complete, however long; the last one is left out if cut off."""
        with self.opened() as file:
            start = file.read(_SAMPLE_BYTES)
            if not _LINE_END.search(start):
                start += file.readline(LONGEST_LINE_BYTES)
            is_whole = not file.read(1)
        lines = _LINE.findall(start.decode("utf-8-sig", "surrogateescape"))
        return (lines if is_whole or len(lines) == 1 else lines[:-1])[:_SAMPLE_LINES]

    def without(self, numbers: Container[int], copy: Path) -> "TextFile":
        """Copy the file, with the lines of these numbers, counted from 1, made empty; each keeps its end."""
        with self.opened() as file, copy.open("wb") as kept:
            for number, line in enumerate(file, start=1):
                kept.write(line[len(line.rstrip(b"\r\n")) :] if number in numbers else line)
        return TextFile(copy, self.shown)


def is_utf8(text: str) -> bool:
    """Whether a text can be written as UTF-8: it holds no surrogates, as bytes become that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def copy_in(folder: Path) -> Path:
    """An unused path in a folder."""
    return folder / f"{len(list(folder.iterdir()))}.lines"


@dataclass(frozen=True)
class _Survey:
    """Facts about the line ends of a file."""

    last_line_bytes: int
    has_even_ends: bool


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks; no block ends between CR and LF."""
    held = b""
    while piece := file.read(_BLOCK_BYTES):
        piece = held + piece
        held = b"\r" if piece.endswith(b"\r") else b""
        yield piece.removesuffix(held)
    yield held
