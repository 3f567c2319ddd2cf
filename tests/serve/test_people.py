"""Baskets and users of networks that read values, several fields, numbers or sequences."""

import numpy as np
import pytest

from tests.serve.conftest import answered, pairs
from widenet.data.lists import dataset_from_lists
from widenet.runs import train
from widenet.serve.engine import Engine
from widenet.serve.requests import Recommend

WIDTH, NUM = 40, 30
RANDOM = np.random.default_rng(6)
ROWS = [RANDOM.choice(WIDTH, RANDOM.integers(1, 9), replace=False).tolist() for _ in range(NUM)]
VALUES = [RANDOM.integers(1, 6, len(row)).astype(float).tolist() for row in ROWS]
NAMES = {"ids": [f"u{row}" for row in range(NUM)], "item_ids": [f"i{item}" for item in range(WIDTH)]}
OUT = {"name": "out", "kind": "output", "field": "items", "values": "ignore"}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A model that reads items with values, categories and numbers, and its engine."""
    folder = tmp_path_factory.mktemp("wide")
    layers = [
        {"name": "had", "kind": "input", "field": "items", "scale": "unit"},
        {"name": "from", "kind": "input", "field": "country"},
        {"name": "was", "kind": "input", "field": "profile"},
        {"name": "mid", "units": 9, "source": ["had", "from", "was"], "activation": "sigmoid"},
        OUT,
    ]
    data = dataset_from_lists(
        folder / "data",
        ROWS,
        values=VALUES,
        sparse={"country": [[row % 3] for row in range(NUM)]},
        dense={"profile": [[row / NUM, 1 - row / NUM] for row in range(NUM)]},
        **NAMES,
    )
    model = train({"layers": layers}, {"epochs": 1, "shards": 2}, data, folder / "run")
    return model, data, Engine.load(folder / "run", data.path, "cpu", None)


def test_users_have_all_fields_of_the_dataset_beside_baskets_without_them(wide):
    model, data, engine = wide
    users = [f"u{row}" for row in range(0, NUM, 4)]
    baskets = [
        {"items": ["i3", "i1"], "values": [2.0, 5.0]},
        {"items": ["i3", "i1"]},
        {"items": ["i7"], "fields": {"country": "1", "profile": [0.25, 0.5]}},
        {"fields": {"country": ["0", "2"]}},
    ]
    found = answered(
        engine, *(Recommend(user=user) for user in users), *(Recommend(**one) for one in baskets)
    )
    expected = [
        *(model.recommend(users=[user], data=data, k=10)[0] for user in users),
        *(model.recommend(**one) for one in baskets),
    ]
    assert [pairs(answer) for answer in found] == [
        [(one.item, one.score) for one in each] for each in expected
    ]


def test_sequences_keep_their_order_whatever_is_beside_them(tmp_path):
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "state", "kind": "recurrent", "cell": "gru", "units": 7},
        {"name": "out", "kind": "output", "field": "items", "predict": "next"},
    ]
    data = dataset_from_lists(tmp_path / "data", ROWS, sequence=True, **NAMES)
    model = train({"layers": layers}, {"epochs": 1, "shards": 2}, data, tmp_path / "run")
    engine = Engine.load(tmp_path / "run", data.path, "cpu", None)
    baskets = [[f"i{item}" for item in row[::step]] for row in ROWS for step in (1, -1)]
    found = answered(engine, *(Recommend(items=basket) for basket in baskets))
    assert [pairs(answer) for answer in found] == [
        [(one.item, one.score) for one in model.recommend(basket)] for basket in baskets
    ]
    assert [
        pairs(answer) for answer in answered(engine, *(Recommend(user=user) for user in NAMES["ids"]))
    ] == [pairs(answer) for answer in found[::2]]
