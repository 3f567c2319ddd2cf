"""Checking contents: what another program wrote is right, or refused with file, column, rule and value."""

import pyarrow as pa
import pytest

from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.data.manifest import Manifest
from widenet.data.split import split
from widenet.errors import DataError


def check(folder):
    verify(folder, Manifest.read(folder))


def test_a_right_directory_of_another_program_passes(foreign, tmp_path):
    folder = foreign()
    check(folder)
    split(folder, tmp_path / "split", validation=0.5)
    check(tmp_path / "split")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"items": [[0, 3], [], [1]]}, r"column 'items': indices must lie in \[0, 3\); got 3"),
        ({"items.heldout": [[7], [], []]}, r"column 'items.heldout': indices must lie in \[0, 3\); got 7"),
        (
            {"items": [[2, 2], [], [1]]},
            "column 'items': indices must ascend without repeats within a row; example '0' has others",
        ),
        (
            {"items": [[2, 0], [], [1]]},
            "column 'items': indices must ascend without repeats within a row; example '0' has others",
        ),
        ({"items": [[0, None], [], [1]]}, "column 'items': rows must hold no nulls; got 1"),
        ({"items": [[0, 2], None, [1]]}, "column 'items': must hold no nulls"),
        (
            {"items": [[0], [], [1]]},
            "column 'items': must have one value beside each index; 'items.value' has rows of other lengths",
        ),
        (
            {"items.value": [[1, 2], [], [float("nan")]]},
            "column 'items.value': values must be finite numbers; example '2' has nan",
        ),
        (
            {"items.value": [[1, 2], [], [9]]},
            r"field 'items': values must lie in \[1, 5\], as min_value and max_value .* say; got 9",
        ),
        (
            {"age": [[1], [float("inf")], [3]]},
            "column 'age': values must be finite numbers; example '1' has inf",
        ),
        (
            {"weight": [1, -1, 1]},
            "an example's weight must be a finite number of at least 0; example '1' has -1",
        ),
        (
            {"weight": [1, 1, float("nan")]},
            "an example's weight must be a finite number of at least 0; example '2' has nan",
        ),
        ({"weight": pa.array([1.0, 1.0, 1.0], pa.float64())}, "column 'weight' must be float; got double"),
        ({"id": pa.array([b"\xff", b"a", b"b"]).view(pa.string())}, "must hold whole Arrow columns; .*UTF8"),
    ],
)
def test_a_row_that_breaks_a_rule_is_found(foreign, columns, message):
    folder = foreign(columns)
    with pytest.raises(DataError, match=f"examples-00000.arrow: .*{message}"):
        check(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("num_examples", 4, "num_examples must be what the files hold, 3; got 4"),
        ("files__examples-00000.arrow__num_rows", 4, "num_examples must be what the files hold, 4; got 3"),
        (
            "fields__items__num_entries__train",
            4,
            "num_entries of field 'items' must be what the files hold, .*'train': 3.*; got .*'train': 4",
        ),
        ("fields__items__width", 4, "features of field 'items' must be what the files hold, 3; got 4"),
        ("fields__items__width", 0, "fields.items.width: Input should be greater than or equal to 1; got 0"),
        (
            "fields__items__vocabulary",
            "other",
            "files must list the vocabulary of field 'items'; 'other' is missing",
        ),
        ("fields__age__name", "old", "the name of field 'age' must be what the files hold, age; got old"),
    ],
)
def test_a_manifest_that_says_otherwise_is_found(foreign, key, value, message):
    folder = foreign(**{key: value})
    with pytest.raises(DataError, match=message):
        check(folder)


def test_an_index_beyond_the_width_is_refused_when_its_batch_is_read(foreign):
    dataset = Dataset.open(foreign({"items": [[0, 2**32 - 1], [], [1]]}))
    assert dataset.sparse("items", slice(1, 3)).indices.tolist() == [1]
    for read in (lambda: dataset.sparse("items", slice(0, 2)), lambda: dataset.counts("items")):
        with pytest.raises(
            DataError, match=r"foreign: field 'items': indices must lie in \[0, 3\); got 4,294,967,295"
        ):
            read()
