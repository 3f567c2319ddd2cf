"""Makes datasets from files of extreme classification: points with features and labels."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from widenet.arguments import typed
from widenet.data.columns import literal
from widenet.data.dataset import Dataset
from widenet.data.manifest import MAX_WIDTH, WHOLE_NUMBERS, Part, column, value_column
from widenet.data.read import check_file
from widenet.data.rules import FieldLayout
from widenet.data.source import ROW_NUMBER, Scan, Text
from widenet.data.text_formats import lines_of, prepared, sample_of
from widenet.data.words import LABELS
from widenet.data.writer import publication, vocabulary_rows, write_contents
from widenet.errors import DataError, OptionError, reason_of

LINES_A_BLOCK = 4096

_NUMBER = r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?"
_POINT = rf"\s*([0-9]{{1,10}}(,[0-9]{{1,10}})*(\s+|$))?([0-9]{{1,10}}:{_NUMBER}(\s+|$))*"
_POINTS = """
    SELECT number, line, labels, features, weights, NOT coalesce(
        regexp_full_match(line, {form}) AND coalesce(list_max(labels) < {num_labels}, true)
        AND coalesce(list_max(features) < {num_features}, true) AND list_count(weights) = len(weights), false
    ) AS is_bad
    FROM (
        SELECT *,
            list_transform(pairs, lambda pair: TRY_CAST(split_part(pair, ':', 1) AS BIGINT)) AS features,
            list_transform(pairs, lambda pair: TRY_CAST(split_part(pair, ':', 2) AS DOUBLE)) AS weights,
            list_transform(own, lambda label: TRY_CAST(label AS BIGINT)) AS labels
        FROM (
            SELECT *, list_filter(words, lambda word: contains(word, ':')) AS pairs,
                CASE WHEN words[1] <> '' AND NOT contains(words[1], ':')
                    THEN string_split(words[1], ',') ELSE [] END AS own
            FROM (
                SELECT {number} AS number, coalesce(line, '') AS line,
                    string_split_regex(trim(coalesce(line, ''), {spaces}), '\\s+') AS words
                FROM {lines}
            )
        )
    )
    WHERE number <= {num_points} OR words <> ['']
"""
_PAIRS = """
    SELECT number, line, NOT coalesce(regexp_full_match(line, '\\s*[0-9]{{1,18}}\\s+[0-9]{{1,18}}\\s*')
        AND point < {num_points} AND label < {num_labels}, false) AS is_bad, point, label
    FROM (
        SELECT {number} AS number, line, TRY_CAST(regexp_extract(line, '[0-9]+') AS BIGINT) AS point,
            TRY_CAST(regexp_extract(line, '([0-9]+)\\s*$', 1) AS BIGINT) AS label
        FROM {lines} WHERE regexp_matches(line, '\\S')
    )
"""


@dataclass(frozen=True)
class _File:
    """A file whose line 1 is the numbers of points, features and labels; one line a point follows."""

    name: str
    text: Text
    num_points: int
    num_features: int
    num_labels: int

    @classmethod
    def open(cls, path: Path, folder: str) -> "_File":
        """Open a file, with a folder for a copy; raises DataError if line 1 is no header."""
        check_file(path, str(path))
        text = prepared(path, str(path), Path(folder))
        line = (sample_of(text) or [""])[0]
        DataError.require(
            re.fullmatch(r"\s*([0-9]{1,10}\s+){2}[0-9]{1,10}\s*", line),
            "must be three numbers: points, features and labels",
            place=path,
            line=1,
            value=line,
        )
        file = cls(str(path), text, *map(int, line.split()))
        DataError.require(
            1 <= file.num_features <= MAX_WIDTH and 1 <= file.num_labels <= MAX_WIDTH,
            f"features and labels must each be 1 to {MAX_WIDTH:,}",
            place=path,
            line=1,
            value=line,
        )
        return file

    def blocks(self) -> Iterator[tuple["_Rows", "_Rows"]]:
        """Yield the labels and the features of some points at a time.

        Raises:
            DataError: A line breaks a rule, or there are not as many as the header says.
        """
        rule = (
            f"must be labels below {self.num_labels:,} and features below {self.num_features:,},"
            " such as `3,17 0:0.5 8:1`"
        )
        query = _POINTS.format(
            form=literal(_POINT),
            num_points=self.num_points,
            num_features=self.num_features,
            num_labels=self.num_labels,
            number=ROW_NUMBER,
            spaces=literal(" \t\r\v\f"),
            lines=lines_of(self.text, Scan(numbered=True), skip=1),
        )
        num_points = 0
        for batch in _checked(query, self.name, rule, 1):
            labels, features, weights = (batch.column(name) for name in ("labels", "features", "weights"))
            yield _Rows.of(labels), _Rows.of(features, weights.flatten().to_numpy())
            num_points += batch.num_rows
        DataError.require(
            num_points == self.num_points,
            f"must have {self.num_points:,} points, as line 1 says",
            place=self.name,
            value=num_points,
        )


@dataclass(frozen=True)
class _Rows:
    """Some rows of indices in CSR form, in the order of the file; indices may repeat within a row.

    Attributes:
        counts: Number of entries of each row, int64 [E].
        indices: int64 [Z].
        values: float64 [Z]; None if all are 1.
    """

    counts: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, lists: pa.ListArray, values: NDArray[np.float64] | None = None) -> "_Rows":
        """The rows of a column of lists."""
        return cls(np.diff(lists.offsets.to_numpy()).astype(np.int64), lists.flatten().to_numpy(), values)


def _checked(query: str, name: str, rule: str, skipped: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query in order; raises DataError for the first one that is bad.

    Args:
        query: Gives `number`, `line`, `is_bad` and more.
        name: Name of the file.
        rule: The rule of its lines.
        skipped: Number of lines before the first row.
    """
    with duckdb.connect(config={"threads": 1}) as connection:
        try:
            for batch in connection.sql(query).to_arrow_reader(LINES_A_BLOCK):
                for row in np.flatnonzero(batch.column("is_bad").to_numpy(zero_copy_only=False)):
                    number, line = (batch.column(each)[int(row)].as_py() for each in ("number", "line"))
                    raise DataError(rule, place=name, line=number + skipped, value=line.strip())
                yield batch
        except (duckdb.Error, OSError) as error:
            raise DataError(f"must be text in UTF-8: {reason_of(error)}", place=name) from error


def _filtered_pairs(path: Path, file: _File, folder: str) -> NDArray[np.int64]:
    """Read the pairs of a point and a label that an evaluation leaves out: ascending, int64 [P, 2]."""
    check_file(path, str(path))
    lines = lines_of(prepared(path, str(path), Path(folder)), Scan(numbered=True))
    query = _PAIRS.format(
        num_points=file.num_points, num_labels=file.num_labels, number=ROW_NUMBER, lines=lines
    )
    rule = f"must be a point below {file.num_points:,} and a label below {file.num_labels:,}, such as `17 3`"
    batches = _checked(query, str(path), rule, 0)
    pairs = [np.stack([batch.column(each).to_numpy() for each in ("point", "label")], 1) for batch in batches]
    return np.unique(np.concatenate([np.zeros((0, 2), np.int64), *pairs]), axis=0)


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
    OptionError.require(filter_pairs is None or test is not None, "`filter_pairs` needs `test`.")
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
        scratch = stack.enter_context(TemporaryDirectory(dir=folders[0]))
        points = _File.open(Path(train), scratch)
        fields = _Fields.counted(points, labels, features)
        fields.write(folders[0], points)
        if test is not None:
            of_test = _File.open(Path(test), scratch)
            widths = of_test.num_features, of_test.num_labels
            DataError.require(
                widths == (points.num_features, points.num_labels),
                f"must have as many features and labels as {train}",
                place=test,
                line=1,
                value=widths,
            )
            pairs = np.zeros((0, 2), np.int64)
            if filter_pairs is not None:
                pairs = _filtered_pairs(Path(filter_pairs), of_test, scratch)
            fields.write(folders[1], of_test, pairs)
    return Dataset.open(out), None if test_out is None else Dataset.open(test_out)


@dataclass(frozen=True)
class _Fields:
    """The fields of labels and of features, whose order both datasets have.

    Attributes:
        labels: Name of the field of labels.
        features: Name of the field of features.
        counts: By field, the number of training points that have each feature of the file, int64 [width].
    """

    labels: str
    features: str
    counts: dict[str, NDArray[np.int64]]

    @classmethod
    def counted(cls, train: _File, labels: str, features: str) -> "_Fields":
        """Count the labels and features of the training points; raises DataError if no point has a label."""
        counts = [np.zeros(width, dtype=np.int64) for width in (train.num_labels, train.num_features)]
        for block in train.blocks():
            for total, rows in zip(counts, block, strict=True):
                np.add.at(total, _distinct(rows, np.arange(len(total)))[0], 1)
        DataError.require(counts[0].any(), "at least one point must have a label; none has", place=train.name)
        return cls(labels, features, dict(zip((labels, features), counts, strict=True)))

    def write(self, folder: Path, file: _File, filtered: NDArray[np.int64] | None = None) -> None:
        """Write points into a folder.

        Args:
            folder: The folder.
            file: The points.
            filtered: For test points, the pairs that an evaluation leaves out, int64 [P, 2].
        """
        parts: tuple[Part, ...] = ("train",) if filtered is None else ("train", "heldout")
        order = {name: np.argsort(-each, kind="stable") for name, each in self.counts.items()}
        write_contents(
            folder,
            name=Path(file.name).name.split(".")[0],
            layouts=[
                FieldLayout(self.labels, file.num_labels, parts=parts),
                FieldLayout(self.features, file.num_features, has_values=True),
            ],
            batches=self._batches(file, filtered),
            vocabularies={
                name: vocabulary_rows(len(each), list(map(str, order[name])), counts=each[order[name]])
                for name, each in self.counts.items()
            },
            has_weights=False,
            source={
                "sources": [Path(file.name).name],
                LABELS: self.labels,
                WHOLE_NUMBERS: [self.labels, self.features],
                **({} if filtered is None else {"filter_pairs": len(filtered)}),
            },
        )

    def _batches(self, file: _File, filtered: NDArray[np.int64] | None) -> Iterator[pa.RecordBatch]:
        index_of = {
            name: np.argsort(np.argsort(-each, kind="stable"), kind="stable")
            for name, each in self.counts.items()
        }
        of_label, prefix, start = index_of[self.labels], "" if filtered is None else "test-", 0
        for labels, features in file.blocks():
            stop = start + len(labels.counts)
            columns = {"id": pa.array([f"{prefix}{point}" for point in range(start, stop)], pa.string())}
            if filtered is None:
                columns[column(self.labels)] = _lists(*_distinct(labels, of_label)[:2])
            else:
                own = filtered[np.searchsorted(filtered[:, 0], start) : np.searchsorted(filtered[:, 0], stop)]
                pairs = _Rows(np.bincount(own[:, 0] - start, minlength=stop - start), own[:, 1])
                columns[column(self.labels)] = _lists(*_distinct(pairs, of_label)[:2])
                truth = _without(labels, own[:, 0] - start, own[:, 1], len(of_label))
                columns[column(self.labels, "heldout")] = _lists(*_distinct(truth, of_label)[:2])
            indices, counts, values = _distinct(features, index_of[self.features])
            columns[column(self.features)] = _lists(indices, counts)
            columns[value_column(self.features)] = _lists(values, counts)
            yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
            start = stop


def _distinct(
    rows: _Rows, index_of: NDArray[np.int64]
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


def _without(rows: _Rows, points: NDArray[np.int64], labels: NDArray[np.int64], width: int) -> _Rows:
    """Rows without some pairs of row and index."""
    owners = np.repeat(np.arange(len(rows.counts)), rows.counts)
    kept = ~np.isin(owners * width + rows.indices, points * width + labels)
    return _Rows(np.bincount(owners[kept], minlength=len(rows.counts)), rows.indices[kept])


def _lists(entries: NDArray[np.generic], counts: NDArray[np.int64]) -> pa.ListArray:
    """A column of lists."""
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(entries))
