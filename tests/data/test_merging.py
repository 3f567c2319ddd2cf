"""Merging: buckets and plain ids give the dataset that names give; those who stay give the order."""

import random

import pytest

from widenet.data import tables
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest


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


@pytest.mark.parametrize(
    "options", [{"value": "rating"}, {"min_value": 3, "time": "time"}, {"value": "rating", "time": "time"}]
)
def test_plain_ids_give_the_dataset_that_names_give(tmp_path, source, monkeypatch, options):
    draw = random.Random(2)
    lines = [
        f"{draw.randrange(50)},{draw.randrange(30) * 9},{draw.randrange(6)},{draw.randrange(5)}\n"
        for _ in range(900)
    ]
    train, heldout = (
        source(name, "user,item,rating,time\n" + "".join(part))
        for name, part in (("a.csv", lines[:700]), ("b.csv", lines[700:]))
    )
    ingest([train], tmp_path / "plain", heldout=heldout, **options)
    stage = tables.Tables._stage
    monkeypatch.setattr(
        tables.Tables, "_stage", lambda *given, is_plain: not is_plain and stage(*given, False)
    )
    ingest([train], tmp_path / "names", heldout=heldout, **options)
    assert files_of(tmp_path / "plain") == files_of(tmp_path / "names")


def test_ids_that_are_plain_in_one_part_alone_are_those_of_the_other(tmp_path, source):
    train = source("a.csv", "user,item\n7,5\n8,5\n8,6\n")
    heldout = source("b.csv", "user,item\n7,6\n007,5\nseven,5\n")
    ingest([train], tmp_path / "ds", heldout=heldout)
    dataset = Dataset.open(tmp_path / "ds")
    assert dataset.ids(slice(None)) == ["007", "7", "8", "seven"]
    assert dataset.sparse("items", slice(None)).indptr.tolist() == [0, 0, 1, 3, 3]
    assert dataset.sparse("items", slice(None), "heldout").indices.tolist() == [0, 1, 0]
