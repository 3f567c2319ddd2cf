"""What answers say of items: their attributes, if a request names them."""

import json

import msgspec
import pytest

from tests.serve.conftest import NETWORK, answered, pairs
from widenet.data.ingest import ingest
from widenet.runs import train
from widenet.serve.engine import Engine
from widenet.serve.messages import Recommend, RefusedError, Score, Similar


@pytest.fixture(scope="module")
def engine(world):
    """Without attributes."""
    return Engine.load(world.run("first"), None, "cpu", None)


def test_a_search_has_the_attributes_that_are_named(ruled, engine):
    found = ruled[0].catalogue.search("i7", 2, ["genre", "in_stock"])
    assert [(one.item, one.attributes) for one in found] == [
        ("i7", {"genre": "g2", "in_stock": True}),
        *((one.item, one.attributes) for one in found[1:]),
    ]
    assert json.loads(msgspec.json.encode(ruled[0].catalogue.search("i7", 1))) == [
        {"item": "i7", "title": "i7"}
    ]
    for each, names, message in (
        (ruled[0], ["gnre"], 'the items have no attribute "gnre"'),
        (engine, ["genre"], "attributes needs attributes of the items, and the run has none"),
    ):
        with pytest.raises(RefusedError) as refused:
            each.catalogue.search("i7", 1, names)
        assert (refused.value.status, message in refused.value.mistake.message) == (422, True)


def test_the_items_of_an_answer_have_the_attributes_that_are_named(ruled, engine):
    own, model, _ = ruled
    genres = ["genre", "price", "genre"]
    asks = [
        Recommend(items=["i1"], k=30, attributes=genres),
        Recommend(items=["i2"], k=3, attributes=["in_stock"]),
        Score(items=["i1"], candidates=["i8", "i7"], attributes=["genre", "price"]),
        Similar(item="i1", k=4, attributes=["price"]),
        Similar(item="i1", k=2),
        Recommend(items=["i1"], k=30),
    ]
    answers = answered(own, *asks)
    for ask, answer in zip(asks[:4], answers, strict=False):
        ids = [each.item for each in answer.items]
        names = list(dict.fromkeys(ask.attributes))
        assert [each.attributes for each in answer.items] == model.attributes_of(ids, names)
    assert [each.attributes for answer in answers[4:] for each in answer.items] == [msgspec.UNSET] * 32
    assert pairs(answers[0]) == pairs(answers[5])
    for each, names, message in (
        (own, ["genre", "gnre"], 'the items have no attribute "gnre"'),
        (engine, ["genre"], "attributes needs attributes of the items, and the run has none"),
    ):
        wrong = [
            kind(items=["i1"], attributes=names, **more)
            for kind, more in ((Recommend, {}), (Score, {"candidates": ["i2"]}))
        ]
        for refused in answered(each, *wrong, Similar(item="i1", attributes=names)):
            assert (refused.status, message in refused.mistake.message) == (422, True)


def test_the_values_that_rules_may_name_are_told_the_most_frequent_first(tmp_path):
    (tmp_path / "b.csv").write_text("user,item\n" + "".join(f"u{n % 9},{n % 5}\n" for n in range(45)))
    (tmp_path / "i.csv").write_text(
        "item,genre,stock,price\n0,prose,true,1\n1,verse,true,2\n2,verse,false,3\n3,verse,true,4\n4,,true,5\n"
    )
    data = ingest([tmp_path / "b.csv"], tmp_path / "data", items=tmp_path / "i.csv")
    train(NETWORK, {"epochs": 1, "shards": 2}, data, tmp_path / "run")
    told = Engine.load(tmp_path / "run", None, "cpu", None).about.attributes
    assert {name: (each.kind, each.values) for name, each in told.items()} == {
        "genre": ("text", ["verse", "prose"]),
        "stock": ("boolean", [True, False]),
        "price": ("number", []),
    }


def test_attributes_are_told_in_the_order_in_which_they_say_something(tmp_path):
    """Words and booleans first, then what items share otherwise, then what differs from item to item."""
    (tmp_path / "b.csv").write_text("user,item\n" + "".join(f"u{n % 9},{n % 8}\n" for n in range(72)))
    lines = [
        f"{n},c{n},{100 + n},{2000 + n % 2},t{n // 3};t{n // 4},{n % 2},2026-01-0{n % 2 + 1}"
        for n in range(8)
    ]
    (tmp_path / "i.csv").write_text("item,code,number,year,tags,new,since\n" + "\n".join(lines))
    options = {"items_separator": ";", "items_booleans": ["new"]}
    data = ingest([tmp_path / "b.csv"], tmp_path / "data", items=tmp_path / "i.csv", **options)
    told = ["tags", "new", "year", "since", "code", "number"]
    assert data.attributes("items").telling() == told
    train(NETWORK, {"epochs": 1, "shards": 2}, data, tmp_path / "run")
    assert list(Engine.load(tmp_path / "run", None, "cpu", None).about.attributes) == told
