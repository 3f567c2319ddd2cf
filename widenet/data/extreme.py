"""Makes datasets from files of extreme classification: points with features and labels."""

import re
from collections.abc import Iterator, Mapping
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
class _Points:
    """A file whose line 1 is the numbers of points, features and labels; one line a point follows."""

    text: Text
    num_points: int
    num_features: int
    num_labels: int

    @classmethod
    def open(cls, path: Path, folder: str) -> "_Points":
        """Open a file, with a folder for a copy; raises DataError if line 1 is no header."""
        check_file(path, str(path))
        text = prepared(path, str(path), Path(folder))
        line = (sample_of(text) or [""])[0]
        header = re.fullmatch(r"\s*([0-9]{1,10})\s+([0-9]{1,10})\s+([0-9]{1,10})\s*", line)
        numbers = [int(each) for each in header.groups()] if header else [0, 0, 0]
        rule = f"must be three numbers: points, and features and labels of 1 to {MAX_WIDTH:,}"
        is_one = all(1 <= width <= MAX_WIDTH for width in numbers[1:])
        DataError.require(is_one, rule, place=path, line=1, value=line)
        return cls(text, *numbers)

    def blocks(self) -> Iterator[pa.RecordBatch]:
        """Yield some points at a time, in their order: lists of labels, of features and of weights.

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
        for batch in _checked(query, self.text.name, rule, 1):
            yield batch
            num_points += batch.num_rows
        rule = f"must have {self.num_points:,} points, as line 1 says"
        DataError.require(num_points == self.num_points, rule, place=self.text.name, value=num_points)

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Count the points of each label and of each feature; raises DataError if no point has a label."""
        widths = (self.num_labels, self.num_features)
        labels, features = counts = tuple(np.zeros(width, np.int64) for width in widths)
        for block in self.blocks():
            for total, name in zip(counts, ("labels", "features"), strict=True):
                rows, entries = _entries(block.column(name))
                np.add.at(total, np.unique(rows * len(total) + entries) % len(total), 1)
        DataError.require(labels.any(), "must have a point with a label; none has", place=self.text.name)
        return labels, features


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


def _filtered_pairs(path: Path, points: _Points, folder: str) -> NDArray[np.int64]:
    """Read the pairs of a point and a label that an evaluation leaves out: ascending, int64 [P, 2]."""
    check_file(path, str(path))
    lines = lines_of(prepared(path, str(path), Path(folder)), Scan(numbered=True))
    query = _PAIRS.format(
        num_points=points.num_points, num_labels=points.num_labels, number=ROW_NUMBER, lines=lines
    )
    rule = (
        f"must be a point below {points.num_points:,} and a label below {points.num_labels:,}, such as `17 3`"
    )
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
        points = _Points.open(Path(train), scratch)
        counts = dict(zip((labels, features), points.counts(), strict=True))
        _write(folders[0], points, counts)
        if test is not None:
            of_test = _Points.open(Path(test), scratch)
            widths = of_test.num_features, of_test.num_labels
            rule = f"must have as many features and labels as {train}"
            is_same = widths == (points.num_features, points.num_labels)
            DataError.require(is_same, rule, place=test, line=1, value=widths)
            pairs = np.zeros((0, 2), np.int64)
            if filter_pairs is not None:
                pairs = _filtered_pairs(Path(filter_pairs), of_test, scratch)
            _write(folders[1], of_test, counts, pairs)
    return Dataset.open(out), None if test_out is None else Dataset.open(test_out)


def _write(
    folder: Path,
    points: _Points,
    counts: Mapping[str, NDArray[np.int64]],
    filtered: NDArray[np.int64] | None = None,
) -> None:
    """Write points into a folder.

    Args:
        folder: The folder.
        points: The points.
        counts: For the fields of labels and features, the training points that have each, int64 [width].
        filtered: For test points, the pairs that an evaluation leaves out, int64 [P, 2].
    """
    labels, features = counts
    parts: tuple[Part, ...] = ("train",) if filtered is None else ("train", "heldout")
    order = {name: np.argsort(-each, kind="stable") for name, each in counts.items()}
    write_contents(
        folder,
        name=Path(points.text.name).name.split(".")[0],
        layouts=[
            FieldLayout(labels, points.num_labels, parts=parts),
            FieldLayout(features, points.num_features, has_values=True),
        ],
        batches=_batches(points, labels, features, order, filtered),
        vocabularies={
            name: vocabulary_rows(len(each), list(map(str, order[name])), counts=each[order[name]])
            for name, each in counts.items()
        },
        has_weights=False,
        source={
            "sources": [Path(points.text.name).name],
            LABELS: labels,
            WHOLE_NUMBERS: [labels, features],
            **({} if filtered is None else {"filter_pairs": len(filtered)}),
        },
    )


def _batches(
    points: _Points,
    labels: str,
    features: str,
    order: Mapping[str, NDArray[np.int64]],
    filtered: NDArray[np.int64] | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the examples of the points, with labels and features in the order of their fields."""
    index_of = {name: np.argsort(each, kind="stable") for name, each in order.items()}
    of_label, width, start = index_of[labels], points.num_labels, 0
    for block in points.blocks():
        stop, prefix = start + block.num_rows, "" if filtered is None else "test-"
        columns = {"id": pa.array([f"{prefix}{point}" for point in range(start, stop)], pa.string())}
        rows, entries = _entries(block.column("labels"))
        if filtered is None:
            columns[column(labels)], _ = _lists(rows, entries, of_label, block.num_rows)
        else:
            own = filtered[slice(*np.searchsorted(filtered[:, 0], (start, stop)))] - (start, 0)
            columns[column(labels)], _ = _lists(own[:, 0], own[:, 1], of_label, block.num_rows)
            is_true = ~np.isin(rows * width + entries, own[:, 0] * width + own[:, 1])
            truth = _lists(rows[is_true], entries[is_true], of_label, block.num_rows)
            columns[column(labels, "heldout")] = truth[0]
        weights = block.column("weights").flatten().to_numpy()
        lists = _lists(*_entries(block.column("features")), index_of[features], block.num_rows, weights)
        columns[column(features)], columns[value_column(features)] = lists
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        start = stop


def _entries(lists: pa.ListArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The row and the value of each entry of a column of lists."""
    return np.repeat(np.arange(len(lists)), np.diff(lists.offsets.to_numpy())), lists.flatten().to_numpy()


def _lists(
    rows: NDArray[np.int64],
    entries: NDArray[np.int64],
    index_of: NDArray[np.int64],
    num_rows: int,
    values: NDArray[np.float64] | None = None,
) -> tuple[pa.ListArray, pa.ListArray]:
    """Make columns of renumbered entries, ascending in a row, and of their values; repeated ones add up.

    Args:
        rows: The row of each entry, ascending.
        entries: The entries.
        index_of: The new number of each entry.
        num_rows: Number of rows.
        values: The values of the entries; by default 1.
    """
    kept, place = np.unique(rows * len(index_of) + index_of[entries], return_inverse=True)
    total = np.zeros(len(kept))
    np.add.at(total, place, 1.0 if values is None else values)
    offsets = pa.array(np.searchsorted(kept // len(index_of), np.arange(num_rows + 1)).astype(np.int32))
    with np.errstate(over="ignore"):  # the writer names an example with an infinite value
        arrays = (kept % len(index_of)).astype(np.uint32), total.astype(np.float32)
    indices, sums = (pa.ListArray.from_arrays(offsets, pa.array(array)) for array in arrays)
    return indices, sums
