"""Files of the Extreme Classification Repository: sparse text with labels and features, and pairs to filter.

Bhatia, Dahiya, Jain, Kar, Mittal, Prabhu and Varma, "The extreme classification repository", 2016.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from widenet.data.formats.text import TextFile
from widenet.data.manifest import MAX_WIDTH
from widenet.errors import DataError
from widenet.regular_files import LONGEST_LINE_BYTES, check_regular

LINES_A_BLOCK = 4096

_NUMBER = rb"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_POINT = re.compile(rb"(\d{1,10}(?:,\d{1,10})*(?=\s|$))?((?:\s*\d{1,10}:" + _NUMBER + rb"(?=\s|$))*)")
_HEADER = re.compile(rb"\s*(\d{1,19})\s+(\d{1,19})\s+(\d{1,19})\s*")
_PAIR = re.compile(rb"\s*(\d{1,19})\s+(\d{1,19})\s*")
_FORM = "must be labels and features, such as `3,17 0:0.5 8:1`"
_LONGEST_SHOWN = 40


@dataclass(frozen=True)
class Rows:
    """Some rows of indices in CSR form, in the order of the file; indices may repeat within a row.

    Attributes:
        counts: Number of entries of each row, int64 [E].
        indices: int64 [Z].
        values: float64 [Z]; None if all are 1.
    """

    counts: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Size:
    """The three numbers of a header."""

    num_points: int
    num_features: int
    num_labels: int


@dataclass(frozen=True)
class ExtremeText:
    """A file whose header names the numbers of points, features and labels; one line a point follows."""

    path: Path

    @cached_property
    def size(self) -> Size:
        """The numbers of the header; raises DataError if it is none."""
        _check_file(self.path)
        with TextFile(self.path).opened() as file:
            line = file.readline(LONGEST_LINE_BYTES)
        found = _HEADER.fullmatch(line)
        if found is None:
            raise self._mistake(1, "must be three numbers: points, features and labels", line)
        size = Size(*map(int, found.groups()))
        if not (1 <= size.num_features <= MAX_WIDTH and 1 <= size.num_labels <= MAX_WIDTH):
            raise self._mistake(1, f"features and labels must each be 1 to {MAX_WIDTH:,}", line)
        return size

    def blocks(self) -> Iterator[tuple[Rows, Rows]]:
        """Yield the labels and the features of some points at a time.

        Raises:
            DataError: A line breaks a rule, or there are not as many as the header says.
        """
        size, num_points = self.size, 0
        with TextFile(self.path).opened() as file:
            file.readline(LONGEST_LINE_BYTES)
            while lines := list(islice(file, LINES_A_BLOCK)):
                left = max(0, size.num_points - num_points)
                if not any(map(bytes.strip, lines[left:])):
                    lines = lines[:left]  # without empty lines at the end
                if lines:
                    yield self._parsed(lines, num_points + 2)
                num_points += len(lines)
        if num_points != size.num_points:
            raise DataError(
                f"{self.path}: must have {size.num_points:,} points, as line 1 says; got {num_points:,}."
                " Download it again."
            )

    def _parsed(self, lines: list[bytes], first_line: int) -> tuple[Rows, Rows]:
        matches = []
        for number, line in enumerate(lines, start=first_line):
            found = _POINT.fullmatch(line.strip())
            if found is None:
                raise self._mistake(number, _FORM, line)
            matches.append(found.groups(default=b""))
        labels = _numbers(b" ".join(own for own, _ in matches).replace(b",", b" "))
        pairs = _numbers(b" ".join(own for _, own in matches).replace(b":", b" "))
        num_labels = np.array([own.count(b",") + bool(own) for own, _ in matches], dtype=np.int64)
        num_features = np.array([own.count(b":") for _, own in matches], dtype=np.int64)
        size = self.size
        read = (
            ("label", Rows(num_labels, labels.astype(np.int64)), size.num_labels),
            ("feature", Rows(num_features, pairs[::2].astype(np.int64), pairs[1::2]), size.num_features),
        )
        for what, rows, width in read:
            wrong = np.flatnonzero(rows.indices >= width)
            if len(wrong):
                row = int(np.searchsorted(np.cumsum(rows.counts), wrong[0], side="right"))
                rule = f"every {what} must be below {width:,}, as line 1 says"
                raise self._mistake(first_line + row, rule, str(rows.indices[wrong[0]]).encode())
        return read[0][1], read[1][1]

    def _mistake(self, number: int, rule: str, line: bytes) -> DataError:
        return mistake(self.path, number, rule, line)


def _numbers(text: bytes) -> NDArray[np.float64]:
    """Read numbers that white space parts, float64."""
    return np.fromstring(text.decode("ascii"), sep=" ") if text.strip() else np.zeros(0)


def _check_file(path: Path) -> None:
    """Raise DataError unless a path is that of a file."""
    check_regular(path)
    if path.is_dir():
        raise DataError(f"{path}: must be a file; it is a directory. Name a file in it.")
    if not path.exists():
        raise DataError(f"{path}: the file does not exist. Check the path.")


def mistake(path: Path, number: int, rule: str, line: bytes) -> DataError:
    """Make the error for a line that breaks a rule."""
    text = line.decode(errors="replace").strip()
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return DataError(f"{path}: line {number}: {rule}; got {shown!r}. Correct the line, or download it again.")


def filtered_pairs(path: Path, size: Size) -> NDArray[np.int64]:
    """Read the pairs of a point and a label that an evaluation leaves out.

    Args:
        path: The file: a point and a label in each line.
        size: The numbers of points and labels.

    Returns:
        The distinct pairs, int64 [P, 2], ascending.

    Raises:
        DataError: The file is missing, or a line breaks a rule.
    """
    _check_file(path)
    pairs = []
    with TextFile(path).opened() as file:
        for number, line in enumerate(file, start=1):
            found = _PAIR.fullmatch(line)
            if found is None and line.strip():
                raise mistake(path, number, "must be a point and a label, such as `17 3`", line)
            if found is not None:
                point, label = map(int, found.groups())
                if point >= size.num_points or label >= size.num_labels:
                    rule = f"must be a point below {size.num_points:,} and a label below {size.num_labels:,}"
                    raise mistake(path, number, rule, line)
                pairs.append((point, label))
    return np.array(sorted(set(pairs)), dtype=np.int64).reshape(-1, 2)
