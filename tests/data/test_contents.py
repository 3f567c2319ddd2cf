"""Checking contents: what another program wrote is right, or refused with file, column, rule and value."""

import pyarrow as pa
import pytest

from tests.mistakes import mistake
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
    "columns",
    [
        {"items": [[0, 3], [], [1]]},
        {"items.heldout": [[7], [], []]},
        {"items": [[2, 2], [], [1]]},
        {"items": [[2, 0], [], [1]]},
        {"items": [[0, None], [], [1]]},
        {"items": [[0, 2], None, [1]]},
        {"items": [[0], [], [1]]},
        {"items.value": [[1, 2], [], [float("nan")]]},
        {"items.value": [[1, 2], [], [9]]},
        {"age": [[1], [float("inf")], [3]]},
        {"weight": [1, -1, 1]},
        {"weight": [1, 1, float("nan")]},
        {"weight": pa.array([1.0, 1.0, 1.0], pa.float64())},
        {"id": pa.array([b"\xff", b"a", b"b"]).view(pa.string())},
    ],
)
def test_a_row_that_breaks_a_rule_is_found(foreign, columns):
    folder = foreign(columns)
    with mistake(DataError, place="examples-00000.arrow"):
        check(folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_examples", 4),
        ("files__examples-00000.arrow__num_rows", 4),
        ("fields__items__num_entries__train", 4),
        ("fields__items__width", 4),
        ("fields__items__width", 0),
        ("fields__items__vocabulary", "other"),
        ("fields__age__name", "old"),
    ],
)
def test_a_manifest_that_says_otherwise_is_found(foreign, key, value):
    folder = foreign(**{key: value})
    with mistake(DataError):
        check(folder)


def test_an_index_beyond_the_width_is_refused_when_its_batch_is_read(foreign):
    dataset = Dataset.open(foreign({"items": [[0, 2**32 - 1], [], [1]]}))
    assert dataset.sparse("items", slice(1, 3)).indices.tolist() == [1]
    for read in (lambda: dataset.sparse("items", slice(0, 2)), lambda: dataset.counts("items")):
        with mistake(DataError, place="items"):
            read()
