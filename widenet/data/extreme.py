"""Makes datasets from files of extreme classification: points with features and labels."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from widenet.arguments import typed
from widenet.data.dataset import Dataset
from widenet.data.manifest import MAX_WIDTH, WHOLE_NUMBERS, Part, column, value_column
from widenet.data.read import check_file
from widenet.data.rules import FieldLayout
from widenet.data.text_formats import decompressed
from widenet.data.words import LABELS
from widenet.data.writer import publication, vocabulary_rows, write_contents
from widenet.errors import DataError, OptionError, shown
from widenet.regular_files import LONGEST_LINE_BYTES

LINES_A_BLOCK = 4096

_NUMBER = rb"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_POINT = re.compile(rb"(\d{1,10}(?:,\d{1,10})*(?=\s|$))?((?:\s*\d{1,10}:" + _NUMBER + rb"(?=\s|$))*)")
_HEADER = re.compile(rb"\s*(\d{1,19})\s+(\d{1,19})\s+(\d{1,19})\s*")
_PAIR = re.compile(rb"\s*(\d{1,19})\s+(\d{1,19})\s*")
_FORM = "must be labels and features, such as `3,17 0:0.5 8:1`"


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
        check_file(self.path, str(self.path))
        with decompressed(self.path, str(self.path)) as file:
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
        with decompressed(self.path, str(self.path)) as file:
            file.readline(LONGEST_LINE_BYTES)
            while lines := list(islice(file, LINES_A_BLOCK)):
                left = max(0, size.num_points - num_points)
                if not any(map(bytes.strip, lines[left:])):
                    lines = lines[:left]  # without empty lines at the end
                if lines:
                    yield self._parsed(lines, num_points + 2)
                num_points += len(lines)
        if num_points != size.num_points:
            rule = f"must have {size.num_points:,} points, as line 1 says; got {num_points:,}"
            raise DataError(f"{self.path}: {rule}.")

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


def mistake(path: Path, number: int, rule: str, line: bytes) -> DataError:
    """Make the error for a line that breaks a rule."""
    text = line.decode(errors="replace").strip()
    return DataError(f"{path}: line {number}: {rule}; got {shown(text)}.")


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
    check_file(path, str(path))
    pairs = []
    with decompressed(path, str(path)) as file:
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


@typed
def ingest_extreme(
    train: Path | str,
    out: Path | str,
    *,
    test: Path | str | None = None,
    test_out: Path | str | None = None,
    filter_pairs: Path | str | None = None,
    labels: str = "labels",
    features: str = "features",
    overwrite: bool = False,
) -> tuple[Dataset, Dataset | None]:
    """Make datasets from the sparse text of the Extreme Classification Repository, and open them.

    An example is a point. It has a sparse field of labels, and one of features with values. Both datasets
    have the same features and labels in the same order, by falling count in `train`. The labels of test
    points are the heldout part, and the filtered pairs the train part, which no evaluation ranks.

    Args:
        train: The training points: a header of three numbers, then labels and features in each line.
        out: The dataset directory to make from them.
        test: The test points.
        test_out: The dataset directory to make from these.
        filter_pairs: The pairs of a test point and a label that an evaluation leaves out, one in each line.
        labels: Name of the field of labels.
        features: Name of the field of features.
        overwrite: Whether to replace earlier datasets, both once the new ones are whole.

    Returns:
        Both datasets; None instead of the second without `test`.

    Raises:
        DataError: A line breaks a rule, or a directory exists already.
        OptionError: `test`, `test_out` and `filter_pairs` do not go together.
    """
    if (test is None) != (test_out is None):
        raise OptionError("`test` and `test_out` go together: the file, and the directory.")
    if filter_pairs is not None and test is None:
        raise OptionError("`filter_pairs` needs `test`.")
    if test_out is not None:
        one, other = Path(out).resolve(), Path(test_out).resolve()
        if one.is_relative_to(other) or other.is_relative_to(one):
            rule = "must be two directories, neither in the other"
            raise OptionError(f"`out` and `test_out` {rule}; got {out} and {test_out}.")
    with ExitStack() as stack:
        folders = [
            stack.enter_context(publication(Path(each), overwrite=overwrite))
            for each in (out, test_out)
            if each is not None
        ]
        points = _Points(ExtremeText(Path(train)), labels, features)
        points.write_train(folders[0])
        if test is not None:
            points.write_test(folders[1], ExtremeText(Path(test)), filter_pairs)
    return Dataset.open(out), None if test_out is None else Dataset.open(test_out)


class _Points:
    """Writes points under the features and labels of a training file, which is read once to count them.

    Raises:
        DataError: A line breaks a rule, or no point has a label.
    """

    def __init__(self, train: ExtremeText, labels: str, features: str) -> None:
        self._train, self._labels, self._features = train, labels, features
        size = train.size
        self._label_counts = np.zeros(size.num_labels, dtype=np.int64)
        self._feature_counts = np.zeros(size.num_features, dtype=np.int64)
        for each_labels, each_features in train.blocks():
            for counts, rows in (
                (self._label_counts, each_labels),
                (self._feature_counts, each_features),
            ):
                indices, _, _ = _distinct(rows, np.arange(len(counts)))
                np.add.at(counts, indices, 1)
        if not self._label_counts.any():
            raise DataError(f"{train.path}: at least one point must have a label; none has.")
        self._index_of_label = _index_of(self._label_counts)
        self._index_of_feature = _index_of(self._feature_counts)

    def write_train(self, folder: Path) -> None:
        """Write the training points into a folder."""
        self._write(folder, self._train, "", ("train",), None)

    def write_test(self, folder: Path, test: ExtremeText, filter_pairs: Path | str | None) -> None:
        """Write test points into a folder; raises DataError for other features or labels, or a wrong line."""
        ours, own = self._train.size, test.size
        if (own.num_features, own.num_labels) != (ours.num_features, ours.num_labels):
            raise DataError(
                f"{test.path}: line 1: must have {ours.num_features:,} features and {ours.num_labels:,}"
                f" labels, as {self._train.path} has; got {own.num_features:,} and {own.num_labels:,}."
            )
        pairs = np.zeros((0, 2), np.int64)
        if filter_pairs is not None:
            pairs = filtered_pairs(Path(filter_pairs), own)
        self._write(folder, test, "test-", ("train", "heldout"), pairs)

    def _write(
        self,
        folder: Path,
        file: ExtremeText,
        prefix: str,
        parts: tuple[Part, ...],
        filtered: NDArray[np.int64] | None,
    ) -> None:
        size = file.size
        counts = {self._labels: self._label_counts, self._features: self._feature_counts}
        order = {name: np.argsort(-each, kind="stable") for name, each in counts.items()}
        vocabularies = {
            name: vocabulary_rows(len(each), list(map(str, order[name])), counts=each[order[name]])
            for name, each in counts.items()
        }
        write_contents(
            folder,
            name=file.path.name.split(".")[0],
            layouts=[
                FieldLayout(self._labels, size.num_labels, parts=parts),
                FieldLayout(self._features, size.num_features, has_values=True),
            ],
            batches=self._batches(file, prefix, filtered),
            vocabularies=vocabularies,
            has_weights=False,
            source={
                "sources": [file.path.name],
                LABELS: self._labels,
                WHOLE_NUMBERS: [self._labels, self._features],
                **({} if filtered is None else {"filter_pairs": len(filtered)}),
            },
        )

    def _batches(
        self, file: ExtremeText, prefix: str, filtered: NDArray[np.int64] | None
    ) -> Iterator[pa.RecordBatch]:
        start = 0
        for labels, features in file.blocks():
            stop = start + len(labels.counts)
            columns = {"id": pa.array([f"{prefix}{point}" for point in range(start, stop)], pa.string())}
            if filtered is None:
                columns[column(self._labels)] = _lists(*_distinct(labels, self._index_of_label)[:2])
            else:
                own = filtered[np.searchsorted(filtered[:, 0], start) : np.searchsorted(filtered[:, 0], stop)]
                pairs = Rows(np.bincount(own[:, 0] - start, minlength=stop - start), own[:, 1])
                columns[column(self._labels)] = _lists(*_distinct(pairs, self._index_of_label)[:2])
                truth = _without(labels, own[:, 0] - start, own[:, 1], len(self._index_of_label))
                columns[column(self._labels, "heldout")] = _lists(*_distinct(truth, self._index_of_label)[:2])
            indices, counts, values = _distinct(features, self._index_of_feature)
            columns[column(self._features)] = _lists(indices, counts)
            columns[value_column(self._features)] = _lists(values, counts)
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
            start = stop


def _index_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index in the dataset of each feature of a file: by falling count, then by number."""
    index_of = np.empty(len(counts), dtype=np.int64)
    index_of[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return index_of


def _distinct(
    rows: Rows, index_of: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.float32]]:
    """Renumber the entries of rows, ascending within a row; the values of a repeated one are added up.

    Returns:
        Indices uint32 [Z], their number in each row, int64 [E], and values float32 [Z].
    """
    keys = np.repeat(np.arange(len(rows.counts)), rows.counts) * len(index_of) + index_of[rows.indices]
    kept, place = np.unique(keys, return_inverse=True)
    values = np.zeros(len(kept))
    np.add.at(values, place, 1.0 if rows.values is None else rows.values)
    counts = np.bincount(kept // len(index_of), minlength=len(rows.counts))
    with np.errstate(over="ignore"):  # the writer names an example with an infinite value
        return (kept % len(index_of)).astype(np.uint32), counts, values.astype(np.float32)


def _without(rows: Rows, points: NDArray[np.int64], labels: NDArray[np.int64], width: int) -> Rows:
    """Rows without some pairs of row and index."""
    owners = np.repeat(np.arange(len(rows.counts)), rows.counts)
    kept = ~np.isin(owners * width + rows.indices, points * width + labels)
    return Rows(np.bincount(owners[kept], minlength=len(rows.counts)), rows.indices[kept])


def _lists(entries: NDArray[np.generic], counts: NDArray[np.int64]) -> pa.ListArray:
    """A column of lists."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(entries))
