"""Merging: any number of buckets gives the same dataset, and the order of examples is that of those who
stay.
"""

import random

import pytest

from tests.mistakes import mistake
from widenet.data import tables
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.errors import DataError


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("names", ["", "u"])
@pytest.mark.parametrize("options", [{"value": "rating"}, {"min_value": 3, "time": "time"}])
def test_any_number_of_buckets_gives_the_same_bytes(tmp_path, source, monkeypatch, names, options):
    draw = random.Random(3)
    lines = [
        f"{names}{draw.randrange(70)},{draw.randrange(40)},{draw.randrange(6)},{draw.randrange(5)}\n"
        for _ in range(900)
    ]
    train, heldout = (
        source(name, "user,item,rating,time\n" + "".join(part))
        for name, part in (("a.csv", lines[:700]), ("b.csv", lines[700:]))
    )
    ingest([train], tmp_path / "one", heldout=heldout, **options)
    monkeypatch.setattr(tables, "ROWS_PER_BUCKET", 5)
    monkeypatch.setattr(tables, "ROWS_PER_STREAM", 2048)
    ingest([train], tmp_path / "many", heldout=heldout, threads=3, **options)
    assert files_of(tmp_path / "many") == files_of(tmp_path / "one")


def test_users_who_do_not_stay_do_not_decide_the_order_of_the_others(tmp_path, source):
    ratings = source("r.csv", "user,item,rating\n10,x,5\n9,x,5\nanna,x,1\n9,y,4\n9,y,1\n10,z,2\n")
    manifest = ingest([ratings], tmp_path / "ds", min_value=3).manifest
    dataset = Dataset.open(tmp_path / "ds")
    assert dataset.ids(slice(None)) == ["9", "10"]
    assert dataset.sparse("items", slice(None)).indices.tolist() == [0, 1, 0]
    assert dataset.vocabulary("items").ids(range(2)) == ["x", "y"]
    assert {name: count for name, count in manifest.source.items() if name.startswith("train_")} == {
        "train_rows_read": 6,
        "train_duplicates_merged": 1,
        "train_below_min_value": 2,
    }


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path, source, monkeypatch):
    ratings = source("r.csv", "user,item\na,x\nb,x\n")
    number = tables.Tables.number

    def changed(self, again=False):
        ratings.write_text("user,item\na,x\n")
        return number(self, again)

    monkeypatch.setattr(tables.Tables, "number", changed)
    with mistake(DataError, place="r.csv"):
        ingest([ratings], tmp_path / "ds")
    assert not (tmp_path / "ds").exists()
