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
NO_NUL = (
    "must not hold the character NUL. Remove it, for example with `tr -d '\\0'`; UTF-16 must become UTF-8."
)
NO_UTF8 = "must be UTF-8 text. Convert the file, for example with `iconv -f latin1 -t utf-8`."

WHITE_SPACE = r"\s+"
"""The delimiter that means any run of spaces and tabs; pandas calls it the same."""

_SAMPLE_BYTES = 2**16
_PIECE_BYTES = 2**20
_SAMPLE_LINES = 100
_ENDLESS_BYTES = 2**26
"""Bytes without an end of a line after which the rest of a file is not read."""
_LINE_END = re.compile(rb"[\r\n]")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
"""A line with its end: `str.splitlines` would also end it where U+2028 or a form feed stands within."""
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class TextFile:
    """A file of text, whose first bytes tell whether it is compressed.

    name: what messages call it, if not by its path.
    """

    path: Path
    name: str | None = None

    @property
    def shown(self) -> str:
        """What messages call the file."""
        return self.name or str(self.path)

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
            raise DataError(
                f"{self.shown}: must be a whole file of {compression}; {error}. Fetch or compress it again."
            ) from error

    def lines(self) -> Iterator[str]:
        """The lines with their ends; bytes that are no UTF-8 become U+FFFD."""
        with (
            self.opened() as file,
            io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="\n") as text,
        ):
            yield from text

    def check_end(self, num_bytes: int) -> None:
        """Raise DataError where the last line is longer (num_bytes: up to LONGEST_LINE_BYTES): DuckDB
        would leave it out without a word.
        """
        if self._survey.last_line_bytes > num_bytes:
            raise DataError(
                f"{self.shown}: the last line must have at most {num_bytes:,} bytes; it is longer. Close its"
                " quotes, or part it."
            )

    def with_even_ends(self, folder: Path) -> "TextFile":
        """The file itself if all its lines end in LF, or all in CRLF; otherwise a copy in a folder, in which
        every line ends in LF.

        The copy is plain text. Ends of lines within quotes become LF in it too.
        """
        if self._survey.has_even_ends:
            return self
        copy = copy_in(folder)
        with self.opened() as file, copy.open("wb") as even:
            for piece in _pieces(file):
                once = piece.replace(b"\r\r\n", b"\r\n") if self._survey.is_converted_twice else piece
                even.write(once.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
        return TextFile(copy, self.shown)

    @cached_property
    def _survey(self) -> "_Survey":
        """How lines end, from one pass over the file."""
        length, has_ended = 0, False
        num_lf, num_cr, num_crlf, num_crcrlf = 0, 0, 0, 0
        with self.opened() as file:
            for piece in _pieces(file):
                num_lf += piece.count(b"\n")
                if b"\r" in piece:
                    num_cr += piece.count(b"\r")
                    num_crlf += piece.count(b"\r\n")
                    num_crcrlf += piece.count(b"\r\r\n")
                text = piece.rstrip(b"\r\n")
                if text:
                    start = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
                    length = len(text) - start + (0 if start or has_ended else length)
                    has_ended = False
                has_ended = has_ended or len(text) < len(piece)
                if length > _ENDLESS_BYTES:
                    line = max(num_lf, num_cr) + 1
                    raise DataError(
                        f"{self.shown}: line {line} must have at most {LONGEST_LINE_BYTES:,} bytes; it is"
                        " longer. Check the file."
                    )
        return _Survey(length, num_cr == 0 or num_cr == num_crlf == num_lf, num_crcrlf == num_lf > 0)

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
        return TextFile(copy, self.shown)


def copy_in(folder: Path) -> Path:
    """A path in a folder where nothing is yet."""
    return folder / f"{len(list(folder.iterdir()))}.lines"


@dataclass(frozen=True)
class _Survey:
    """Facts about the lines of a file."""

    last_line_bytes: int
    has_even_ends: bool
    is_converted_twice: bool
    """Whether every line ends in CR CR LF: CRLF that a transfer in text mode has converted once more."""


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """The bytes of a file, some at a time; no piece ends between CR and LF, nor within CR CR LF."""
    held = b""
    while piece := file.read(_PIECE_BYTES):
        piece = held + piece
        held = next((end for end in (b"\r\r", b"\r") if piece.endswith(end)), b"")
        yield piece.removesuffix(held)
    yield held
