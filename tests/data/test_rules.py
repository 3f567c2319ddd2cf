"""The rules of names and widths: what a field may be called, wherever it is made."""

import pytest

from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.data.rules import FieldLayout
from widenet.errors import DataError

WRONG_NAMES = [
    ("", "be printable text without"),
    ("a/b", "be printable text without"),
    ("a\\b", "be printable text without"),
    ("a\nb", "be printable text without"),
    ("../esc", "be printable text without"),
    ("id", "not be id or weight"),
    ("weight", "not be id or weight"),
    ("x.value", "not end in .value, .validation, .heldout"),
    ("x.validation", "not end in .value, .validation, .heldout"),
    ("x.heldout", "not end in .value, .validation, .heldout"),
    (".x", "not begin with . or examples-"),
    ("examples-x", "not begin with . or examples-"),
    ("x" * 101, "have at most 100 bytes"),
    ("書" * 34, "have at most 100 bytes"),
]


@pytest.mark.parametrize(("name", "rule"), WRONG_NAMES)
def test_a_field_name_that_cannot_be_a_column_and_a_file_is_refused(tmp_path, source, name, rule):
    interactions = source("r.csv", "user,item\na,x\n")
    for make in (
        lambda: ingest([interactions], tmp_path / "out" / "ds", field=name),
        lambda: dataset_from_lists(tmp_path / "out" / "ds", [[0]], field=name),
        lambda: dataset_from_lists(tmp_path / "out" / "ds", [[0]], sparse={name: [[0]]}),
        lambda: dataset_from_lists(tmp_path / "out" / "ds", [[0]], dense={name: [[0]]}),
    ):
        with pytest.raises(DataError, match=f"a field's name must .*{rule}.*; got .*Choose another name"):
            make()
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


@pytest.mark.parametrize("name", ["items", "Items 2", "x" * 100, "été", "a.b", "example", "ids"])
def test_other_names_are_right(tmp_path, name):
    assert list(dataset_from_lists(tmp_path / "ds", [[0]], field=name).fields) == [name]


@pytest.mark.parametrize("width", [0, -1, 2**32 + 1])
def test_a_width_that_no_index_has_is_refused(width):
    with pytest.raises(DataError, match="field 'x': width must be 1 to 4,294,967,296; got"):
        FieldLayout("x", width)


def test_two_fields_of_one_name_are_refused(tmp_path):
    with pytest.raises(DataError, match="the names of fields must differ; 'items' occurs twice"):
        dataset_from_lists(tmp_path / "ds", [[0]], dense={"items": [[0.5]]})
