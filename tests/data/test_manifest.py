"""The manifest: read back equal, and every damage named."""

import pytest

from tests.mistakes import mistake
from tests.older import dataset_of_format_1
from widenet.data.contents import verify
from widenet.data.lists import dataset_from_lists
from widenet.data.manifest import Manifest
from widenet.errors import DataError


@pytest.fixture
def folder(tmp_path):
    dataset_from_lists(tmp_path / "ds", [[0, 2], [1]], heldout=[[1], []])
    return tmp_path / "ds"


def test_a_written_manifest_is_read_back_equal(folder):
    manifest = Manifest.read(folder)
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest
    assert manifest.fields["items"].num_entries == {"train": 3, "heldout": 1}
    assert manifest.fields["items"].parts == ("train", "heldout")
    assert manifest.files["items.vocabulary.arrow"].num_rows == 3
    verify(folder, manifest)


def test_a_path_that_is_no_dataset_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for name in ("none", "file", ""):
        with mistake(DataError, place=tmp_path / name):
            Manifest.read(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"format_version": 1,', "dataset.json"),
        ('{"format_version": 3, "unknown": 1}', "dataset.json"),
        (None, "num_examples"),
    ],
)
def test_a_manifest_that_is_broken_newer_or_of_other_types_is_refused(folder, text, place):
    if text is None:
        dataset_of_format_1(folder, num_examples="two")
    else:
        (folder / "dataset.json").write_text(text)
    with mistake(DataError, place=place):
        Manifest.read(folder)


def test_a_missing_and_a_shortened_file_are_named(folder):
    path = folder / "items.vocabulary.arrow"
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(2):
        with mistake(DataError, place=path.name):
            Manifest.read(folder)
        path.unlink(missing_ok=True)
