"""The rules of names and widths: what a field may be called, wherever it is made."""

import pytest

from tests.mistakes import mistake
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.data.rules import FieldLayout
from widenet.errors import DataError

WRONG_NAMES = [
    *(
        "",
        "a\nb",
        "a/b",
        "../esc",
        "id",
        "weight",
        "x.value",
        "x.validation",
        "x.heldout",
        ".x",
        "examples-x",
    ),
    "x" * 101,
    "書" * 34,
]


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a_field_name_that_cannot_be_a_column_and_a_file_is_refused(tmp_path, source, name):
    interactions = source("r.csv", "user,item\na,x\n")
    for make in (
        lambda: ingest([interactions], tmp_path / "out" / "ds", field=name),
        lambda: dataset_from_lists(tmp_path / "out" / "ds", [[0]], field=name),
        lambda: dataset_from_lists(tmp_path / "out" / "ds", [[0]], sparse={name: [[0]]}),
        lambda: dataset_from_lists(tmp_path / "out" / "ds", [[0]], dense={name: [[0]]}),
    ):
        with mistake(DataError):
            make()
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


@pytest.mark.parametrize("name", ["items", "Items 2", "x" * 100, "été", "a.b", "example", "ids"])
def test_other_names_are_right(tmp_path, name):
    assert list(dataset_from_lists(tmp_path / "ds", [[0]], field=name).fields) == [name]


@pytest.mark.parametrize("width", [0, -1, 2**32 + 1])
def test_a_width_that_no_index_has_is_refused(width):
    with mistake(DataError, place="x"):
        FieldLayout("x", width)
