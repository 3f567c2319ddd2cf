"""The manifest: read back equal, and every damage named."""

import json

import pytest

from tests.older import dataset_of_format_1
from widenet.data.contents import verify
from widenet.data.lists import dataset_from_lists
from widenet.data.manifest import Manifest, column, value_column
from widenet.errors import DataError


@pytest.fixture
def folder(tmp_path):
    dataset_from_lists(tmp_path / "ds", [[0, 2], [1]], heldout=[[1], []])
    return tmp_path / "ds"


def refusal(folder):
    with pytest.raises(DataError) as caught:
        Manifest.read(folder)
    return str(caught.value)


def test_columns_are_named_as_the_contract_says():
    assert [column("items"), column("items", "validation"), column("items", "heldout")] == [
        "items",
        "items.validation",
        "items.heldout",
    ]
    assert value_column("items", "heldout") == "items.heldout.value"


def test_a_written_manifest_is_read_back_equal(folder):
    manifest = Manifest.read(folder)
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest
    assert manifest.fields["items"].num_entries == {"train": 3, "heldout": 1}
    assert manifest.fields["items"].parts == ("train", "heldout")
    assert manifest.files["items.vocabulary.arrow"].num_rows == 3
    verify(folder, manifest)


def test_a_path_that_is_no_dataset_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "file").touch()
    assert "does not exist" in refusal(tmp_path / "none")
    assert "this is a file" in refusal(tmp_path / "file")
    assert "must hold dataset.json; it is missing. Make one with `widenet.ingest(" in refusal(tmp_path)


def test_broken_json_is_refused(folder):
    (folder / "dataset.json").write_text('{"format_version": 1,')
    assert "dataset.json: must be JSON" in refusal(folder)


def test_a_newer_format_is_refused_by_its_version(folder):
    document = json.loads((folder / "dataset.json").read_text()) | {"format_version": 3, "unknown": 1}
    (folder / "dataset.json").write_text(json.dumps(document))
    assert "format_version must be at most 2; got 3. Update widenet" in refusal(folder)


def test_a_field_of_the_wrong_type_is_named(folder):
    dataset_of_format_1(folder, num_examples="two")
    assert "num_examples: Input should be a valid integer; got 'two'" in refusal(folder)


def test_a_missing_and_a_shortened_file_are_named(folder):
    path = folder / "items.vocabulary.arrow"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert f"must have {len(content):,} bytes; got {len(content) - 1:,}" in refusal(folder)
    path.unlink()
    assert "items.vocabulary.arrow: listed in dataset.json but missing" in refusal(folder)


def test_verify_finds_a_flipped_bit(folder):
    path = folder / "examples-00000.arrow"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    manifest = Manifest.read(folder)
    with pytest.raises(
        DataError,
        match=(
            r"examples-00000.arrow: all that describes its rows \(schema, headers, footer\) must have the"
            r" SHA-256"
        ),
    ):
        verify(folder, manifest)
