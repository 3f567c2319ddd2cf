"""Reads a JSON array in a text file element by element.

Memory holds one element and a block of the file.
"""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

from widenet.data.formats.text import TextFile
from widenet.errors import DataError
from widenet.regular_files import LONGEST_LINE_BYTES

_BLOCK_CHARACTERS = 2**20
_SPACE = re.compile(r"[ \t\r\n]*")
_LINE_ENDS = str.maketrans("\r\n", "  ")


def is_array(file: TextFile) -> bool:
    """Whether a text begins with a JSON array."""
    with file.opened() as stream:
        return stream.read(2**10).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def elements(file: TextFile) -> Iterator[str]:
    """Yield the text of each element, on one line.

    Raises:
        DataError: The file is not an array, or an element is too long.
    """
    with (
        file.opened() as opened,
        io.TextIOWrapper(opened, encoding="utf-8-sig", errors="surrogateescape", newline="") as text,
    ):
        yield from _Reader(file.shown, text).elements()


def as_lines(file: TextFile, copy: Path) -> TextFile:
    """Copy an array with each element on its own line; the bytes of elements are unchanged."""
    with copy.open("w", encoding="utf-8", errors="surrogateescape", newline="") as lines:
        lines.writelines(f"{element}\n" for element in elements(file))
    return TextFile(copy, file.shown)


class _Reader:
    """A position in a text that is read in blocks."""

    def __init__(self, name: str, text: io.TextIOWrapper) -> None:
        self._name, self._text = name, text
        self._held, self._at = "", 0
        self._number = 0

    def elements(self) -> Iterator[str]:
        """Yield the elements of the array."""
        self._take("[")
        while not (self._number == 0 and self._take("]", is_needed=False)):
            self._number += 1
            yield self._element()
            if not self._take(",", is_needed=False):
                self._take("]", otherwise="a comma or the end of the array")
                break
        if self._next():
            raise self._wrong("text follows the end of the array")

    def _next(self) -> str:
        """The next character that is not white space; "" at the end."""
        while True:
            spaces = _SPACE.match(self._held, self._at)
            self._at = spaces.end() if spaces else self._at
            if self._at < len(self._held) or not self._read_more():
                return self._held[self._at : self._at + 1]

    def _read_more(self) -> bool:
        """Read another block; returns whether there was one."""
        block = self._text.read(max(_BLOCK_CHARACTERS, len(self._held) - self._at))
        self._held, self._at = self._held[self._at :] + block, 0
        return bool(block)

    def _take(self, sign: str, is_needed: bool = True, otherwise: str = "") -> bool:
        """Skip a character if it comes next; returns whether it did."""
        if self._next() != sign:
            if is_needed:
                raise self._wrong(f"{otherwise or sign} is missing")
            return False
        self._at += 1
        return True

    def _element(self) -> str:
        """The text of the next element."""
        if not self._next():
            raise self._wrong("the file ends within the array")
        while True:
            try:
                _, end = _DECODER.raw_decode(self._held, self._at)
            except (json.JSONDecodeError, RecursionError) as error:
                reason = "it is nested too deeply"
                if isinstance(error, json.JSONDecodeError):
                    reason = error.msg
                end = None
            if end is not None and end < len(self._held):  # a number at the very end may continue
                element = self._held[self._at : end]
                self._at = end
                return element.translate(_LINE_ENDS)
            if len(self._held) - self._at > LONGEST_LINE_BYTES:
                raise self._wrong(
                    f"it must have at most {LONGEST_LINE_BYTES:,} characters" if end is not None else reason
                )
            if not self._read_more():
                raise self._wrong("the file ends within the array" if end is not None else reason)

    def _wrong(self, reason: str) -> DataError:
        place = f"object {self._number}: " if self._number else ""
        return DataError(f"{self._name}: {place}must be a JSON array of objects; {reason}.")


_DECODER = json.JSONDecoder(parse_int=str)  # Python refuses to convert very long numbers
