"""Rules on attributes of items, wherever a run recommends from Python."""

import shutil

import pytest

from tests.mistakes import mistake
from tests.trainings import TIED
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.errors import FitError, OptionError
from widenet.runs import Model, train

WIDTH = 40
GENRES = ["poetry", "drama", "novel"]
TRAINING = {"epochs": 2, "batch_size": 8, "shards": 2}


def genre(item):
    return GENRES[item % 3] if item % 7 else None


def in_stock(item):
    return item % 4 != 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose dataset is gone, and an unsplit dataset of the same items."""
    folder = tmp_path_factory.mktemp("rules")
    rows = [(f"u{user}", str((user + step) % WIDTH)) for user in range(60) for step in (0, 2, 5, 7)]
    items = {
        "item": list(range(WIDTH + 5)),
        "title": [f"Book {item}" for item in range(WIDTH + 5)],
        "genre": [genre(item) for item in range(WIDTH + 5)],
        "in_stock": [in_stock(item) for item in range(WIDTH + 5)],
        "price": [item / 2 for item in range(WIDTH + 5)],
        "tags": [["a"] for _ in range(WIDTH + 5)],
    }
    columns = {"user": [user for user, _ in rows], "item": [item for _, item in rows]}
    gone = ingest(columns, folder / "gone", items=items)
    ingest(columns, folder / "data", items=items)
    train(TIED, TRAINING, gone, folder / "run")
    shutil.rmtree(folder / "gone")
    return folder


@pytest.fixture
def model(folder):
    return Model.load(folder / "run")


BASKET = ["3", "5"]


def anything(item):
    return item is not None


def kept(rows, most=None, where=anything, k=10):
    """The items of a whole ranking that fulfil the rules, from the best on."""
    counts, found = {}, []
    for row in rows:
        category = genre(int(row.item))
        if not where(int(row.item)) or (category is not None and counts.get(category, 0) == most):
            continue
        counts[category] = counts.get(category, 0) + 1
        found.append(row)
    return found[:k]


def test_rules_choose_from_the_whole_ranking(model):
    everything = model.recommend(BASKET, k=WIDTH)
    assert model.recommend(BASKET, at_most={"genre": 2}) == kept(everything, 2)
    assert model.recommend(BASKET, where={"in_stock": True}) == kept(everything, None, in_stock)
    assert model.recommend(BASKET, where={"in_stock": False}) == kept(
        everything, None, lambda item: not in_stock(item)
    )
    assert model.recommend(BASKET, where={"genre": "poetry", "in_stock": True}) == kept(
        everything, None, lambda item: genre(item) == "poetry" and in_stock(item)
    )
    chosen = model.recommend(BASKET, at_most={"genre": 1}, where={"genre": ["poetry", "drama"]})
    assert chosen == kept(everything, 1, lambda item: genre(item) in ("poetry", "drama"))
    assert len(chosen) == 2


def test_baskets_users_and_predictions_have_the_rules_too(folder, model):
    rules = {"at_most": {"genre": 1}, "where": {"in_stock": True}}
    alone = model.recommend(BASKET, k=6, **rules)
    assert model.recommend([BASKET, ["1"]], k=6, **rules)[0] == alone
    data = folder / "data"
    of_users = model.recommend(users=["u3", "u9"], data=data, k=6, **rules)
    blocks = list(model.predict(data, 6, **rules))
    found = {}
    for block in blocks:
        start = 0
        for user, count in zip(block.users, block.counts.tolist(), strict=True):
            found[user] = block.items[start : start + count]
            start += count
    assert [[row.item for row in rows] for rows in of_users] == [found["u3"], found["u9"]]
    everything = model.recommend(users="u3", data=data, k=WIDTH)
    assert model.recommend(users="u3", data=data, at_most={"genre": 1}) == kept(everything, 1)


@pytest.mark.parametrize(
    "rules",
    [
        {"at_most": {"gnre": 2}},
        {"where": {"price": 3}},
        {"where": {"genre": ["sonnet"]}},
        {"where": {"in_stock": "maybe"}},
        {"at_most": {"genre": 0}},
    ],
)
def test_a_wrong_rule_is_refused(model, rules):
    with mistake(OptionError):
        model.recommend(BASKET, **rules)


def test_items_without_attributes_have_no_rules(tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0, 1], [1, 2]] * 4, width=3)
    model = train(TIED, {**TRAINING, "epochs": 1}, data, tmp_path / "run")
    for rules in ({"at_most": {"genre": 1}}, {"where": {"in_stock": True}}):
        with mistake(FitError):
            model.recommend(["0"], **rules)
