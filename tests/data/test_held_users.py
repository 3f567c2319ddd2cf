"""Held-out users: nobody in both datasets, the same features, and the seed alone decides."""

import numpy as np
import pytest

from tests.mistakes import mistake
from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.data.split import split
from widenet.errors import DataError, OptionError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    random = np.random.default_rng(3)
    lists = [
        sorted(random.choice(30, size=size, replace=False).tolist())
        for size in [0, 1, 1, *random.integers(2, 20, size=100)]
    ]
    return dataset_from_lists(
        tmp_path_factory.mktemp("users") / "whole",
        lists,
        weights=range(103),
        sparse={"land": [[row % 3] for row in range(103)]},
        dense={"age": [[row] for row in range(103)]},
    )


def rows_of(dataset, part="train"):
    batch = dataset.sparse("items", slice(None), part)
    rows = np.split(batch.indices.numpy(), batch.indptr[1:-1].numpy())
    return {name: set(row.tolist()) for name, row in zip(dataset.ids(slice(None)), rows, strict=True)}


@pytest.mark.parametrize("validation", [0.0, 0.25])
def test_users_are_in_one_dataset_and_have_all_that_they_had(tmp_path, whole, validation):
    split(
        whole.path,
        tmp_path / "others",
        users_out=tmp_path / "held",
        heldout_users=0.3,
        heldout=0.2,
        validation=validation,
        seed=4,
    )
    others, held = Dataset.open(tmp_path / "others"), Dataset.open(tmp_path / "held")
    had, train, fold_in, asked = rows_of(whole), rows_of(others), rows_of(held), rows_of(held, "heldout")
    assert len(held.ids(slice(None))) == 30
    assert train.keys() | fold_in.keys() == had.keys()
    assert not train.keys() & fold_in.keys()
    for name in fold_in:
        assert fold_in[name] | asked[name] == had[name]
        assert len(asked[name]) == round(0.2 * len(had[name]))
    kept = rows_of(others, "validation") if validation else {name: set() for name in train}
    assert all(train[name] | kept[name] == had[name] for name in train)
    for dataset in (others, held):
        assert dataset.vocabulary("items").ids(range(30)) == whole.vocabulary("items").ids(range(30))
        assert dataset.vocabulary("items").counts.tolist() == dataset.counts("items").tolist()
        assert dataset.vocabulary("land").counts.sum() == dataset.num_examples
        numbers = [float(name) for name in dataset.ids(slice(None))]
        assert (
            dataset.weights(slice(None)).tolist()
            == numbers
            == dataset.dense("age", slice(None))[:, 0].tolist()
        )
        verify(dataset.path, dataset.manifest)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["held", "others"]


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"heldout_users": 0}, "heldout_users"),
        ({"heldout_users": 1, "heldout": 0.2}, "heldout_users"),
        ({"heldout_users": 0.5}, "heldout"),
        ({"heldout_users": 0.5, "heldout": 0.2, "validation": 1}, "validation"),
        ({"heldout_users": 0.5, "heldout": 0.2, "seed": -1}, "seed"),
        ({"heldout_users": 0.5, "heldout_last": 1}, "heldout_users"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path, whole, options, option):
    with mistake(OptionError, option=option):
        split(whole.path, tmp_path / "a", users_out=tmp_path / "b", **options)


def test_directories_and_shares_that_cannot_be_are_refused(tmp_path, whole):
    options = {"heldout_users": 0.5, "heldout": 0.2}
    for out, users_out in (("a", "a"), ("a", "a/b"), ("a/b", "a")):
        with mistake(DataError, option="users_out"):
            split(whole, tmp_path / out, users_out=tmp_path / users_out, overwrite=True, **options)
    with mistake(DataError, option="overwrite"):
        split(whole, tmp_path / "a", users_out=whole.path, **options)
    with mistake(DataError, option="heldout_users"):
        split(whole, tmp_path / "a", users_out=tmp_path / "b", **options | {"heldout_users": 0.001})
    assert list(tmp_path.iterdir()) == []


def test_examples_with_one_label_each_are_set_aside_with_all_of_it(tmp_path):
    words, labels = [[row % 5, 5 + row % 7] for row in range(60)], [[row % 3] for row in range(59)] + [[]]
    whole = dataset_from_lists(tmp_path / "whole", words, sparse={"label": labels}, width=12)
    for options in ({"heldout": 0.5}, {"validation": 0.9}):
        with mistake(DataError, option=next(iter(options))):
            split(whole, tmp_path / "out", field="label", **options)
    names = {"out": tmp_path / "seen", "users_out": tmp_path / "unseen"}
    split(whole, **names, heldout_users=0.2, heldout=1, field="label")
    seen, unseen = map(Dataset.open, names.values())
    assert (seen.num_examples, unseen.num_examples) == (48, 12)
    assert seen.counts("label").sum() == 47
    assert unseen.counts("label").tolist() == unseen.vocabulary("label").counts.tolist() == [0, 0, 0]
    rows = [int(name) for name in unseen.ids(slice(None))]
    assert unseen.sparse("label", slice(None), "heldout").indices.tolist() == [row % 3 for row in rows]
    assert unseen.sparse("items", slice(None)).indices.tolist() == [
        word for row in rows for word in words[row]
    ]
    for dataset in (seen, unseen):
        verify(dataset.path, dataset.manifest)
