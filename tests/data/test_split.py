"""Splitting: exact shares, one entry stays, and the seed alone decides."""

import numpy as np
import pytest

from tests.mistakes import mistake
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.data.split import split
from widenet.errors import DataError

WIDTH = 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    random = np.random.default_rng(3)
    lists = [
        sorted(random.choice(WIDTH, size=size, replace=False).tolist())
        for size in [0, 1, 2, 3, *random.integers(0, 30, size=200)]
    ]
    return dataset_from_lists(
        tmp_path_factory.mktemp("split") / "whole",
        lists,
        values=[[index + 0.5 for index in row] for row in lists],
        weights=[1.0] * len(lists),
        titles=[f"title {index}" for index in range(WIDTH)],
        dense={"age": [[row] for row in range(len(lists))]},
    )


def lists_of(dataset, part="train"):
    batch = dataset.sparse("items", slice(None), part)
    return [row.tolist() for row in np.split(batch.indices.numpy(), batch.indptr[1:-1].numpy())]


@pytest.mark.parametrize(
    ("heldout", "validation"), [(0.2, 0.0), (0.0, 0.3), (0.2, 0.1), (0.6, 0.39), (0.94, 0.05)]
)
def test_each_row_gives_its_share_and_keeps_at_least_one(tmp_path, whole, heldout, validation):
    split(whole.path, tmp_path / "ds", heldout=heldout, validation=validation, seed=1)
    dataset = Dataset.open(tmp_path / "ds")
    absent = [[] for _ in range(whole.num_examples)]
    rows = zip(
        lists_of(whole),
        lists_of(dataset),
        lists_of(dataset, "heldout") if heldout else absent,
        lists_of(dataset, "validation") if validation else absent,
        strict=True,
    )
    for before, train, held, valid in rows:
        n = len(before)
        assert sorted(train + held + valid) == before
        assert len(held) == min(round(heldout * n), max(n - 1, 0))
        assert len(valid) == min(round(validation * n), max(n - 1, 0) - len(held)) if n else not valid
        assert len(train) >= min(n, 1)


def test_values_and_other_columns_stay_with_their_entries(tmp_path, whole):
    split(whole.path, tmp_path / "ds", heldout=0.4)
    dataset = Dataset.open(tmp_path / "ds")
    for part in ("train", "heldout"):
        batch = dataset.sparse("items", slice(None), part)
        assert batch.values.tolist() == [index + 0.5 for index in batch.indices.tolist()]
    assert dataset.ids(slice(None)) == whole.ids(slice(None))
    assert dataset.dense("age", slice(None)).equal(whole.dense("age", slice(None)))
    assert dataset.vocabulary("items").titles(range(WIDTH)) == whole.vocabulary("items").titles(range(WIDTH))
    assert (
        dataset.vocabulary("items").counts.tolist()
        == dataset.counts("items").tolist()
        != whole.counts("items").tolist()
    )
    assert dataset.manifest.source["split"] == {
        "field": "items",
        "seed": 0,
        "heldout": 0.4,
        "validation": 0.0,
    }


def test_one_seed_gives_one_split_and_another_seed_another(tmp_path, whole):
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        split(whole.path, tmp_path / name, heldout=0.2, seed=seed)
    content = [(tmp_path / name / "examples-00000.arrow").read_bytes() for name in ("one", "same", "other")]
    assert content[0] == content[1] != content[2]


def test_what_moves_does_not_depend_on_the_examples_beside_it(tmp_path):
    rows = [list(range(20))] * 3
    dataset_from_lists(tmp_path / "three", rows)
    dataset_from_lists(tmp_path / "many", rows + [list(range(7))] * 20_000)
    split(tmp_path / "three", tmp_path / "a", heldout=0.5)
    split(tmp_path / "many", tmp_path / "b", heldout=0.5)
    few, many = (
        lists_of(Dataset.open(tmp_path / "a"), "heldout"),
        lists_of(Dataset.open(tmp_path / "b"), "heldout"),
    )
    assert many[:3] == few
    assert few[0] != few[1]
    assert any(later != first for first, later in zip(many[3:], many[16_387:], strict=False))
    later = np.bincount(np.concatenate(many[16_384:]), minlength=7)[:7] / (20_003 - 16_384)
    assert np.abs(later - 4 / 7).max() < 0.05


def test_a_part_is_split_off_once(tmp_path, whole):
    split(whole.path, tmp_path / "held", heldout=0.2)
    split(tmp_path / "held", tmp_path / "both", validation=0.1)
    assert Dataset.open(tmp_path / "both").fields["items"].parts == ("train", "validation", "heldout")
    assert lists_of(Dataset.open(tmp_path / "both"), "heldout") == lists_of(
        Dataset.open(tmp_path / "held"), "heldout"
    )
    with mistake(DataError, place="items"):
        split(tmp_path / "held", tmp_path / "again", heldout=0.1)
