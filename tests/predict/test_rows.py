"""Recommendations for every example: in order, filtered, in blocks of bounded size."""

import numpy as np
import pytest
import torch

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError, FitError, OptionError
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


@pytest.mark.parametrize("activation", ["linear", "tanh", "linear_max", "relu"])
def test_weights_are_refused_where_a_score_can_be_negative(activation, data, tmp_path):
    output = {**NETWORK["layers"][2], "activation": activation, "loss": "l2"}
    model = train(
        {"layers": [*NETWORK["layers"][:2], output]}, {"epochs": 1, "shards": 2}, data, tmp_path / "run"
    )
    (tmp_path / "weights").write_text("item,weight\ni3,0\n")
    if activation == "relu":
        found = items_of(model.predict(data, k=WIDTH, weights=tmp_path / "weights", exclude_seen=False))
        assert {len(items) for items in found.values()} == {WIDTH - 1}
        return
    with mistake(FitError, option="weights"):
        model.predict(data, weights=tmp_path / "weights")


def test_nobody_is_shown_what_was_set_aside_of_his_own(model, tmp_path):
    parts = {
        name: [[(items[0] + step) % WIDTH] for items in ROWS]
        for name, step in (("validation", 1), ("heldout", 3))
    }
    rows = [
        [index for index in items if index not in (parts["validation"][row] + parts["heldout"][row])]
        for row, items in enumerate(ROWS)
    ]
    split = dataset_from_lists(tmp_path / "data", rows, ids=USERS, item_ids=IDS, **parts)
    for row, (_, items, _) in enumerate(by_user(model.predict(split, k=WIDTH))):
        had = {*rows[row], *parts["validation"][row], *parts["heldout"][row]}
        assert sorted(items) == sorted(set(IDS) - {IDS[index] for index in had})
    assert set(map(len, items_of(model.predict(split, k=WIDTH, exclude_seen=False)).values())) == {WIDTH}


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
    with mistake(OptionError, option="part"):
        model.predict(split, part="train")


def test_a_mistake_is_told_before_the_first_block_is_asked_for(model, data, tmp_path):
    (tmp_path / "never").write_text("i99\n")
    with mistake(DataError, place="never"):
        model.predict(data, never=tmp_path / "never")
    with mistake(OptionError, option="k"):
        model.predict(data, k=0)
    with mistake(FitError):
        model.predict(dataset_from_lists(tmp_path / "other", [[0]], item_ids=IDS[::-1]))


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


def test_items_are_known_by_id_title_or_a_part_of_one(titled):
    names = [["i0"], ["The Hobbit"], ["hobbit"], ["i0", "the hobbit", "Hobbit"]]
    answers = [titled.recommend(items, k=5) for items in names]
    assert answers[1:] == [answers[0]] * 3
    assert len(answers[0]) == 5
    assert "i0" not in [one.item for one in answers[0]]
    assert titled.understood(["i0", "emma", "i11"]) == {"items": ["The Hobbit", "Emma", "i11"]}


def test_all_items_can_be_recommended_and_no_unit_beyond_them(titled, folder):
    assert set(
        map(len, items_of(titled.predict(folder / "titled", k=WIDTH, exclude_seen=False)).values())
    ) == {WIDTH}
    assert sorted(one.item for one in titled.recommend(["i0"], k=100)) == sorted(IDS[1:])
    assert len(titled.recommend(["i0"], k=11)) == 11
    assert len(titled.recommend(["i0"], k=WIDTH, exclude_seen=False)) == WIDTH


def test_values_change_the_answer_and_the_last_one_of_an_item_counts(titled):
    def ask(*values):
        return [one.score for one in titled.recommend(["i0", "i5"], k=11, values=values)]

    assert ask(1, 1) == [one.score for one in titled.recommend(["i5", "i0"], k=11)]
    assert ask(9, 1) != ask(1, 9)
    assert [one.score for one in titled.recommend(["i5", "i0"], k=11, values=[1, 9])] == ask(9, 1)
    assert [one.score for one in titled.recommend(["i0", "hobbit"], k=11, values=[7, 2])] == [
        one.score for one in titled.recommend(["i0"], k=11, values=[2])
    ]


def test_of_several_outputs_one_must_be_named(tmp_path):
    data = dataset_from_lists(
        tmp_path / "data", [[0, 1], [1, 2]], sparse={"tags": [[0], [1]]}, dense={"age": [[0.1], [0.2]]}
    )
    network = {
        "layers": [
            *({"name": field, "kind": "input", "field": field} for field in ("items", "tags", "age")),
            {"name": "mid", "units": 2, "source": ["items", "tags", "age"]},
            {"name": "out", "kind": "output", "field": "items"},
            {"name": "tag", "kind": "output", "field": "tags", "source": "mid"},
        ]
    }
    model = train(network, {"epochs": 1}, data, tmp_path / "run")
    with mistake(FitError):
        model.recommend(["0"])
    assert [len(model.recommend(["0"], output=name)) for name in ("out", "tag")] == [2, 1]
    with mistake(FitError):
        model.predict(data)
    assert items_of(model.predict(data, output="tag", exclude_seen=False)).keys() == {"0", "1"}
    assert [len(items) for items in items_of(model.predict(data, output="out")).values()] == [1, 1]
