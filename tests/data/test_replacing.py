"""Replacing a dataset: only a whole one takes the place of another, and of nothing that is something else."""

import json

import pytest

from tests.mistakes import mistake
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.data.split import split
from widenet.errors import DataError


@pytest.fixture
def likes(tmp_path):
    (tmp_path / "likes.csv").write_text("user,item\na,1\na,2\nb,1\nb,3\n")
    return tmp_path / "likes.csv"


@pytest.fixture
def data(tmp_path):
    """A dataset of one example."""
    return dataset_from_lists(tmp_path / "data", [[0, 1, 2, 3]])


def inside(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_ingest_takes_the_place_of_an_earlier_dataset(likes, data, tmp_path):
    with mistake(DataError, option="overwrite"):
        ingest(likes, data.path)
    assert ingest(likes, data.path, overwrite=True).num_examples == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "likes.csv"]


def test_an_ingest_that_fails_leaves_the_earlier_dataset(likes, data):
    before = inside(data.path)
    likes.write_text("user,item\na\n")
    with pytest.raises(DataError):
        ingest(likes, data.path, overwrite=True)
    assert inside(data.path) == before


def test_a_split_may_take_the_place_of_its_own_source(data):
    made = split(data, data.path, heldout=0.5, overwrite=True)
    assert made.path == data.path
    assert made.fields["items"].num_entries == {"train": 2, "heldout": 2}


def test_only_a_dataset_and_nothing_beside_it_is_replaced(likes, data, tmp_path):
    def refused():
        before = inside(tmp_path)
        with mistake(DataError):
            ingest(likes, data.path, overwrite=True)
        assert inside(tmp_path) == before

    (data.path / "mine.txt").write_text("mine")
    refused()
    (data.path / "mine.txt").unlink()
    (data.path / "dataset.json").write_text(json.dumps({"format_version": 1}))
    refused()
    (data.path / "dataset.json").unlink()
    refused()
    for path in data.path.iterdir():
        path.unlink()
    assert ingest(likes, data.path, overwrite=True).num_examples == 2
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    data.path.rmdir()
    data.path.write_text("mine")
    refused()


def test_what_comes_into_the_folder_meanwhile_is_not_lost(likes, data):
    def write(_):
        (data.path / "mine.txt").write_text("mine")

    with mistake(DataError, place=data.path):
        ingest(likes, data.path, overwrite=True, on_progress=write)
    assert (data.path / "mine.txt").read_text() == "mine"
    assert Dataset.open(data.path).num_examples == 1
