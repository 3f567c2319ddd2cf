"""Recommendations to baskets and users, one or many, from lists and tables, as lists and tables."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.mistakes import mistake
from tests.rows import all_rows
from tests.trainings import TIED
from widenet.data.lists import dataset_from_lists
from widenet.errors import ArgumentError, DataError, OptionError
from widenet.runs import Recommendation, train

WIDTH = 12
ROWS = [[(user + step) % WIDTH for step in (0, 2, 5, 7)] for user in range(20)]
TRAINING = {"epochs": 2, "batch_size": 8, "shards": 2}
TITLES = [f"Book {item}" for item in range(WIDTH)]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset_from_lists(tmp_path_factory.mktemp("several") / "data", ROWS, width=WIDTH, titles=TITLES)


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    return train(TIED, TRAINING, data, tmp_path_factory.mktemp("several") / "run")


@pytest.fixture(scope="module")
def valued(tmp_path_factory):
    """A model that was trained with a number for each item."""
    folder = tmp_path_factory.mktemp("valued")
    values = [[1.0, 2.0, 3.0, 4.0] for _ in ROWS]
    data = dataset_from_lists(folder / "data", ROWS, values=values, width=WIDTH, titles=TITLES)
    return train(TIED, TRAINING, data, folder / "run")


def plain(rows):
    return [(row.item, row.title, pytest.approx(row.score, rel=1e-5)) for row in rows]


def same(found, expected):
    return [[(row.item, row.title, row.score) for row in rows] for rows in found] == list(
        map(plain, expected)
    )


BASKETS = [["3", "Book 5"], ["0"], ["7", "1", "2"]]


def test_several_baskets_get_what_each_gets_alone(model):
    assert same(model.recommend(BASKETS, k=4), [model.recommend(basket, k=4) for basket in BASKETS])
    assert same(model.recommend([("3",), {"4"}], k=2), [model.recommend([item], k=2) for item in "34"])
    found = model.recommend(BASKETS, k=WIDTH, exclude_seen=False)
    assert [len(rows) for rows in found] == [WIDTH] * 3


def test_numbers_are_ids_and_never_titles(model, tmp_path):
    assert model.recommend([3, np.int64(5)], k=4) == model.recommend(["3", "5"], k=4)
    assert same(model.recommend([[3], np.array([5, 0])], k=4), model.recommend([["3"], ["5", "0"]], k=4))
    titled = dataset_from_lists(tmp_path / "data", ROWS, width=WIDTH, titles=["The 39 Steps", *TITLES[1:]])
    with mistake(DataError):
        train(TIED, TRAINING, titled, tmp_path / "run").recommend([39])


def test_users_get_what_predict_gives_them(model, data):
    found = model.recommend(users=["7", "3", "7"], k=3)
    [block] = model.predict(data, k=3)
    lists = np.array(block.items).reshape(len(ROWS), 3)
    scores = block.scores.reshape(len(ROWS), 3)
    for rows, user in zip(found, (7, 3, 7), strict=True):
        assert [row.item for row in rows] == list(lists[user])
        assert [row.score for row in rows] == pytest.approx(scores[user].tolist(), rel=1e-5)
    assert same([model.recommend(users=7, k=3)], found[:1])


TABLES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.Table}


@pytest.mark.parametrize("kind", TABLES)
def test_recommendations_may_be_a_table(kind, model):
    baskets = [["3", "5"], ["0", "1"], ["2"]]
    table = model.recommend(baskets, k=2, format=kind)
    assert isinstance(table, TABLES[kind])
    columns = table.to_pydict() if kind == "arrow" else {name: list(table[name]) for name in table.columns}
    assert list(columns) == ["user", "item", "title", "score", "rank"]
    assert columns["user"] == [0, 0, 1, 1, 2, 2]
    flat = [row for rows in model.recommend(baskets, k=2) for row in rows]
    assert columns["item"] == [row.item for row in flat]
    assert columns["title"] == [row.title for row in flat]
    assert columns["score"] == pytest.approx([row.score for row in flat], rel=1e-5)
    assert columns["rank"] == [1, 2] * 3


def test_baskets_may_have_values(valued, model):
    for wrong in (
        lambda: model.recommend([[3], [5]], values=[[1.0], [2.0]]),
        lambda: model.explain(3, [5], values=[0.5]),
    ):
        with mistake(OptionError):
            wrong()
    found = valued.recommend([[3, 5], [0]], k=3, values=[[1, 4], [2]])
    assert same(found, [valued.recommend([3, 5], k=3, values=[1, 4]), valued.recommend([0], k=3, values=[2])])


def items(found):
    return [[int(row.item) for row in rows] for rows in found]


ASKED = {
    "one basket": lambda model, **more: [model.recommend(["3", "5"], k=WIDTH, **more)],
    "baskets": lambda model, **more: model.recommend([["3", "5"], ["0"]], k=WIDTH, **more),
    "users": lambda model, **more: model.recommend(users=["3", "8"], k=WIDTH, **more),
    "everybody": lambda model, **more: predicted(model, **more),
}


def predicted(model, **more):
    lists = []
    for block in model.predict(model.run.dataset(), k=WIDTH, **more):
        edges = np.cumsum(block.counts)[:-1]
        pairs = list(zip(block.items, block.scores.tolist(), strict=True))
        lists += [
            [Recommendation(i, TITLES[int(i)], s) for i, s in pairs[start:stop]]
            for start, stop in zip([0, *edges], [*edges, len(pairs)], strict=True)
        ]
    return lists


@pytest.mark.parametrize("who", ASKED)
def test_filters_leave_out_exactly_what_they_name(who, model, tmp_path):
    ask = ASKED[who]
    everything = items(ask(model))
    never, only = [1, "2", 9], [2, 4, 6, 9, 11]
    (tmp_path / "only.txt").write_text("\n".join(map(str, only)), "utf-8")
    kept = [[item for item in row if item not in {1, 2, 9}] for row in everything]
    assert items(ask(model, never=never)) == kept
    kept = [[item for item in row if item in {2, 4, 6, 9, 11}] for row in everything]
    assert items(ask(model, only=only)) == items(ask(model, only=tmp_path / "only.txt")) == kept
    kept = [[item for item in row if item in {4, 6, 11}] for row in everything]
    assert items(ask(model, never=never, only=only)) == kept
    assert items(ask(model, weights={4: 0, "6": 0}, only=only)) == [
        [item for item in row if item in {2, 9, 11}] for row in everything
    ]
    [scores] = [row.score for row in ask(model, weights={4: 1000})[-1] if row.item == "4"] or [None]
    [before] = [row.score for row in ask(model)[-1] if row.item == "4"] or [None]
    assert scores is before is None or scores == pytest.approx(1000 * before, rel=1e-5)


def test_items_are_kept_from_single_users(model):
    everything = items(model.recommend(users=[3, 8], k=WIDTH))
    never_for = {3: [everything[0][0]], "11": ["1"]}
    found = items(model.recommend(users=[3, 8], k=WIDTH, never_for=never_for))
    assert found == [everything[0][1:], everything[1]]


def test_single_users_get_only_what_is_theirs_and_others_all(model):
    everything = items(model.recommend(users=[3, 8, 11], k=WIDTH))
    only_for = {3: everything[0][::2], "8": []}
    found = items(model.recommend(users=[3, 8, 11], k=WIDTH, only_for=only_for))
    assert found == [everything[0][::2], [], everything[2]]
    never_for = {"3": [everything[0][2]]}
    found = items(model.recommend(users=[3, 8], k=WIDTH, only_for=only_for, never_for=never_for))
    assert found == [[everything[0][0], *everything[0][4::2]], []]


def test_filters_of_several_baskets_name_them_by_number(model):
    everything = items(model.recommend(BASKETS, k=WIDTH))
    filters = {"never_for": {0: [everything[0][1]]}, "only_for": {2: everything[2][1:3]}}
    expected = [everything[0][:1] + everything[0][2:], everything[1], everything[2][1:3]]
    assert items(model.recommend(BASKETS, k=WIDTH, **filters)) == expected
    assert items(model.recommend(BASKETS, k=WIDTH, only_for={7: ["0"]})) == everything
    unseen = {"exclude_seen": False, "k": WIDTH, "never_for": {1: ["0"]}}
    assert [len(row) for row in model.recommend(BASKETS, **unseen)] == [WIDTH, WIDTH - 1, WIDTH]


def test_similar_items_are_those_of_numpy(model):
    vectors = all_rows(next(iter(model.network.wide.values()))).numpy().astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = vectors[[4, 9]] @ vectors.T
    order = np.argsort(-cosine, axis=1)
    found = model.similar([4, "Book 9"], k=3)
    for row, (item, rows) in enumerate(zip((4, 9), found, strict=True)):
        nearest = [other for other in order[row] if other != item][:3]
        assert [one.item for one in rows] == [str(other) for other in nearest]
        assert [one.score for one in rows] == pytest.approx(list(cosine[row, nearest]), abs=1e-6)
    assert model.similar("4", k=3) == found[0]
    assert len(model.similar(4, k=100)) == WIDTH - 1
    table = model.similar(["4", "Book 9"], k=1, format="polars")
    assert table["item"].to_list() == ["4", "9"]
    assert table["similar"].to_list() == [rows[0].item for rows in found]


NAN = float("nan")
MISTAKES = [
    (lambda m: m.recommend(["1"], users="2"), OptionError, None),
    (lambda m: m.recommend(users=["2", "x"]), DataError, None),
    (lambda m: m.recommend(users={"1", "2"}), OptionError, None),
    (lambda m: m.recommend(users=pd.DataFrame({"user": ["1"]})), OptionError, None),
    (lambda m: m.recommend({"user": ["1"], "item": ["2"]}), OptionError, None),
    (lambda m: m.recommend(map(str, [1, 2])), OptionError, None),
    (lambda m: m.recommend([["1"], ["x"]]), DataError, None),
    (lambda m: m.recommend([["1"], []]), OptionError, None),
    (lambda m: m.recommend([1], weights=pd.Series({"1": 2.0})), ArgumentError, None),
    (lambda m: m.recommend([["1"], ["2"]], values=[1.0]), OptionError, None),
    (lambda m: m.recommend([["1"], ["2"]], fields={"items": ["3"]}), OptionError, None),
    (lambda m: m.recommend(["1"], never_for={"1": ["2"]}), OptionError, None),
    (lambda m: m.recommend(["1"], format="panda"), ArgumentError, None),
    (lambda m: m.similar([]), OptionError, None),
    (lambda m: m.recommend("12"), OptionError, "items"),
    (lambda m: m.understood("12"), OptionError, "items"),
    (lambda m: m.recommend([]), OptionError, "items"),
    (lambda m: m.recommend(3), OptionError, "items"),
    (lambda m: m.recommend(["1", 2.5]), OptionError, "items"),
    (lambda m: m.recommend(["1", NAN]), OptionError, "items"),
    (lambda m: m.recommend(np.array("1")), OptionError, "items"),
    (lambda m: m.recommend(b"12"), OptionError, "items"),
    (lambda m: m.recommend(fields={"items": np.array("1")}), OptionError, "items"),
    (lambda m: m.recommend({"0", "1"}, values=[1.0, 2.0]), OptionError, "items"),
    (lambda m: m.recommend([{"0", "1"}], values=[[1.0, 2.0]]), OptionError, "items"),
    (lambda m: m.recommend(fields={"items": {"0", "1"}}, values=[1.0, 2.0]), OptionError, "items"),
    (lambda m: m.explain("1", {"0", "1"}, values=[1.0, 2.0]), OptionError, "items"),
    (lambda m: m.explain("1", ["0"], values=[True]), OptionError, "values"),
    (lambda m: m.recommend(["0", "1"], values={1.0, 2.0}), OptionError, "values"),
    (lambda m: m.recommend(["1"], values=[NAN]), DataError, "values"),
    (lambda m: m.recommend(["1"], values=[1e39]), DataError, "values"),
    (lambda m: m.recommend(["1"], values=["2"]), OptionError, "values"),
    (lambda m: m.recommend(["1", "2"], values=[1.0]), OptionError, "values"),
]


@pytest.mark.parametrize(("call", "error", "option"), MISTAKES)
def test_a_mistake_names_its_argument(call, error, option, valued):
    with mistake(error, option=option):
        call(valued)
