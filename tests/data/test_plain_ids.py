"""Plain ids: only texts that are what their number is written as, and the same dataset as by names."""

import random

import pytest

from widenet.data import tables as plain_ids
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest


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
    monkeypatch.setattr(plain_ids, "_ROWS_PER_PIECE", 100)
    ingest([train], tmp_path / "plain", heldout=heldout, **options)
    monkeypatch.setattr(plain_ids, "LARGEST_ID", -1)
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


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}
