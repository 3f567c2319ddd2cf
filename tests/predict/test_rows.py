"""Recommendations for every example: in order, filtered, in blocks of bounded size."""

import numpy as np
import pytest
import torch

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import ArgumentError
from widenet.model.activations import activate, is_signed
from widenet.predict import restrictions as module
from widenet.runs import train
from widenet.spec.activations import ROW_WISE, Activation

NETWORK = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 3, "activation": "tanh"},
        {"name": "out", "kind": "output", "field": "items"},
    ]
}
NUM, WIDTH = 41, 12
IDS = [f"i{index}" for index in range(WIDTH)]
USERS = [f"u{row}" for row in range(NUM)]
ROWS = [
    [row % WIDTH, (row * 5 + 1) % WIDTH] if row % WIDTH != (row * 5 + 1) % WIDTH else [row % WIDTH]
    for row in range(NUM)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


@pytest.fixture(scope="module")
def data(folder):
    return dataset_from_lists(folder / "data", ROWS, ids=USERS, item_ids=IDS)


@pytest.fixture(scope="module")
def model(folder, data):
    return train(NETWORK, {"epochs": 2, "shards": 2}, data, folder / "run")


def by_user(blocks):
    """The items and scores of every user, in order of users."""
    found = []
    for block in blocks:
        assert len(block.users) == len(block.counts)
        assert len(block.items) == len(block.scores) == block.counts.sum()
        stops = np.cumsum(block.counts)
        for user, stop, count in zip(block.users, stops, block.counts, strict=True):
            found.append((user, block.items[stop - count : stop], block.scores[stop - count : stop].tolist()))
    return found


def items_of(blocks):
    return {user: items for user, items, _ in by_user(blocks)}


def test_every_user_gets_in_order_what_recommend_gives_for_the_same_history(model, data):
    found = by_user(model.predict(data, k=4))
    assert [user for user, _, _ in found] == USERS
    for row, (_, items, scores) in enumerate(found):
        alone = model.recommend([IDS[index] for index in ROWS[row]], k=4)
        assert items == [one.item for one in alone]
        assert scores == [one.score for one in alone]


@pytest.mark.parametrize(
    ("largest", "cells", "sizes"), [(7, 2**21, [7] * 5 + [6]), (512, 12, [4] * 10 + [1]), (512, 1, [1] * 41)]
)
def test_blocks_are_bounded_by_users_and_by_recommendations_and_do_not_change_them(
    largest, cells, sizes, model, data, monkeypatch
):
    whole = by_user(model.predict(data, k=3))
    monkeypatch.setattr(module, "RANKED_TOGETHER", largest)
    monkeypatch.setattr(module, "_RECOMMENDATIONS_A_BLOCK", cells)
    assert [len(block.users) for block in model.predict(data, k=3)] == sizes
    assert by_user(model.predict(data, k=3)) == whole


def test_banned_items_are_shown_to_nobody_and_those_of_one_user_to_everybody_else(model, data, tmp_path):
    (tmp_path / "never").write_text("i3\ni4\n")
    (tmp_path / "never_for").write_text("user,item\nu0,i7\nu0,i8\nu2,i9\nnobody,i1\n")
    before = items_of(model.predict(data, k=WIDTH))
    after = items_of(model.predict(data, k=WIDTH, never=tmp_path / "never", never_for=tmp_path / "never_for"))
    barred = {user: {"i3", "i4"} for user in USERS}
    barred["u0"] |= {"i7", "i8"}
    barred["u2"] |= {"i9"}
    assert after == {
        user: [item for item in items if item not in barred[user]] for user, items in before.items()
    }
    (tmp_path / "only_for").write_text("user,item\nu0,i7\nu0,i11\nu0,none\n")
    with pytest.warns(UserWarning, match="only_for: .* 1 of 3, .*'none'"):
        theirs = items_of(model.predict(data, k=WIDTH, only_for=tmp_path / "only_for"))
    assert theirs == {**before, "u0": [item for item in before["u0"] if item in ("i7", "i11")]}
    only = items_of(model.predict(data, k=WIDTH, exclude_seen=False, never_for=tmp_path / "never_for"))
    assert set(IDS) - set(only["u0"]) == {"i7", "i8"}


def test_weights_multiply_scores_before_the_ranking(model, data, tmp_path):
    (tmp_path / "weights").write_text("item,weight\ni3,1000\ni4,0\ni5,0.001\n")
    before = {
        user: dict(zip(items, scores, strict=True))
        for user, items, scores in by_user(model.predict(data, k=WIDTH))
    }
    for user, items, scores in by_user(model.predict(data, k=WIDTH, weights=tmp_path / "weights")):
        factor = {"i3": 1000, "i5": 0.001}
        expected = {item: score * factor.get(item, 1) for item, score in before[user].items() if item != "i4"}
        assert dict(zip(items, scores, strict=True)) == pytest.approx(expected, rel=1e-5)
        assert items[0] == "i3" or "i3" not in items
        assert items[-1] == "i5" or "i5" not in items


def test_every_activation_is_known_to_be_signed_or_not():
    for one in Activation.__args__:
        for kind in one.model_fields["kind"].annotation.__args__:
            values = torch.linspace(-3, 3, 13)
            total = values.abs().sum() if kind in ROW_WISE else None
            given = (
                {"softmax": values.exp(), "relu_max": values.relu(), "linear_max": values / total}
                if total is not None
                else {}
            )
            found = given[kind] if kind in ROW_WISE else activate(one(kind=kind), values)
            assert bool((found < 0).any()) == is_signed(one(kind=kind)), kind


def recall(blocks, truth, k):
    """The mean share of each user's true items among the first k, as somebody would compute it who has the
    file and the truth.
    """
    found = items_of(blocks)
    return np.mean([len(true & set(found[user][:k])) / len(true) for user, true in truth.items() if true])


@pytest.mark.parametrize("part", ["validation", "heldout"])
@pytest.mark.filterwarnings("ignore:.*was trained on")
def test_the_recall_of_what_is_predicted_for_a_part_is_that_of_its_evaluation(part, model, tmp_path):
    random = np.random.default_rng(3)
    shuffled = [random.permutation(WIDTH).tolist() for _ in ROWS]
    parts = {
        "validation": [items[3:5] for items in shuffled],
        "heldout": [items[5 : 5 + row % 3] for row, items in enumerate(shuffled)],
    }
    split = dataset_from_lists(
        tmp_path / "data", [items[:3] for items in shuffled], ids=USERS, item_ids=IDS, **parts
    )
    truth = {user: {IDS[item] for item in items} for user, items in zip(USERS, parts[part], strict=True)}
    found = recall(model.predict(split, k=4, part=part), truth, 4)
    assert found == pytest.approx(model.evaluate(split, part, ks=[4])["recall@4"], rel=0, abs=1e-12)
    assert 0 < found < 1
    assert recall(model.predict(split, k=4), truth, 4) == 0
    with mistake(ArgumentError, option="part"):
        model.predict(split, part="train")


@pytest.fixture(scope="module")
def titled(folder):
    """A model over items with titles and values, two inputs of one field, and room for units to come."""
    network = {
        "layers": [
            {"name": "liked", "kind": "input", "field": "items"},
            {"name": "had", "kind": "input", "field": "items", "values": "ignore"},
            {"name": "mid", "units": 3, "activation": "tanh", "source": ["liked", "had"]},
            {"name": "out", "kind": "output", "field": "items", "units": WIDTH + 5, "values": "ignore"},
        ]
    }
    data = dataset_from_lists(
        folder / "titled",
        ROWS,
        values=[[float(row % 5 + 1)] * len(items) for row, items in enumerate(ROWS)],
        item_ids=IDS,
        titles=["The Hobbit", "Emma", "Emma", *[f"Book {index}" for index in range(3, WIDTH - 1)], None],
    )
    return train(network, {"epochs": 2, "shards": 2}, data, folder / "titled-run")
