"""The model's answers: those of predict and recommend to the bit, in every batch."""

import json

import msgspec
import numpy as np
import pytest

from tests.described import TRAINING, described, network
from tests.mistakes import mistake
from tests.serve.conftest import NETWORK, WIDTH, answered, pairs, predicted
from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError, FitError
from widenet.runs import Model, train
from widenet.serve import engine as module
from widenet.serve.engine import Engine
from widenet.serve.requests import Explain, Recommend, RefusedError, Score, Similar


@pytest.fixture(scope="module")
def engine(world):
    return Engine.load(world.run("first"), world.data, "cpu", None)


def code(refused):
    return refused.code if isinstance(refused, RefusedError) else "invalid"


@pytest.fixture(scope="module")
def model(world):
    return Model.load(world.run("first"), "cpu")


def test_every_batching_of_users_and_baskets_gives_the_bits_of_predict_and_recommend(engine, model, world):
    predictions, random = predicted(model, world.data, k=30), np.random.default_rng(1)
    asks, expected = [], []
    for row in random.permutation(len(world.rows)).tolist():
        k = int(random.integers(1, 30))
        asks.append(Recommend(user=f"u{row}", k=k))
        expected.append(predictions[f"u{row}"][:k])
        items = [f"i{item}" for item in random.permutation(world.rows[row])]
        if items:
            asks.append(Recommend(items=items, k=k))
            expected.append([(one.item, one.score) for one in model.recommend(items, k=k)])
    order = random.permutation(len(asks)).tolist()
    while order:
        chosen, order = order[: (size := int(random.integers(1, 90)))], order[size:]
        found = answered(engine, *(asks[place] for place in chosen))
        assert [pairs(answer) for answer in found] == [expected[place] for place in chosen]
        assert {answer.fingerprint for answer in found} == {model.fingerprint()}


def test_filters_choose_among_the_scores_of_all_items(engine, model):
    everything = [(one.item, one.score) for one in model.recommend(["i1", "i2"], k=WIDTH, exclude_seen=False)]
    never, only = ["i5", "i9", everything[0][0]], [f"i{item}" for item in range(0, WIDTH, 7)]
    wanted = [
        ({}, lambda item: item not in ("i1", "i2")),
        ({"include_seen": True}, lambda _: True),
        ({"never": never}, lambda item: item not in ("i1", "i2", *never)),
        ({"only": [*only, "i1"]}, lambda item: item in only and item not in ("i1", "i2")),
        ({"only": only, "never": ["i7"], "include_seen": True}, lambda item: item in only and item != "i7"),
        ({"only": [*only, "unknown"]}, lambda item: item in only),
    ]
    found = answered(engine, *(Recommend(items=["i1", "i2"], k=WIDTH, **filters) for filters, _ in wanted))
    for answer, (_, allows) in zip(found, wanted, strict=True):
        assert pairs(answer) == [pair for pair in everything if allows(pair[0])]


def test_scores_come_in_the_order_of_the_candidates_seen_ones_too(engine, model):
    score_of = {one.item: one.score for one in model.recommend(["i1", "i2"], k=WIDTH, exclude_seen=False)}
    candidates = ["i8", "i1", "i300", "i8"]
    ask = Score(items=["i1", "i2"], candidates=["i8", "no", "i1", "i300", "i8"], unknown="skip")
    (answer,) = answered(engine, ask)
    assert pairs(answer) == [(item, score_of[item]) for item in candidates]
    assert answer.unknown == ["no"]


def test_similar_items_are_those_of_the_vectors_without_the_item_itself(engine, model):
    vectors, weight = {}, model.network.outputs["out"].weight
    for shard, part in weight.parts.items():
        for unit, row in zip(weight.shards.units(shard), part.weight.numpy(), strict=True):
            vectors[f"i{unit}"] = row.astype(np.float64)
    query = vectors.pop("i4")
    cosine = {
        item: row @ query / np.linalg.norm(row) / np.linalg.norm(query) for item, row in vectors.items()
    }
    best = sorted(cosine, key=cosine.get, reverse=True)[:5]
    others = [Similar(item="i9", k=7), Similar(item="none"), Similar(item="i9", measure="l2")]
    answer, nine, refused, _, again = answered(
        engine, Similar(item="i4", k=5), *others, Similar(item="i9", k=7)
    )
    assert nine == again == answered(engine, Similar(item="i9", k=7))[0]
    assert len(nine.items) == 7
    assert code(refused) == "unknown_item"
    assert [item.item for item in answer.items] == best
    assert [item.score for item in answer.items] == pytest.approx([cosine[item] for item in best])


@pytest.mark.parametrize(
    ("request_", "expected", "option"),
    [
        ({"items": ["i1", "x\n1"]}, "unknown_item", None),
        ({"items": ["i1"], "never": ["x"]}, "invalid", None),
        ({"user": "nobody"}, "unknown_user", None),
        ({"user": "u1", "items": ["i1"]}, "contradiction", "user"),
        ({"items": []}, "nothing_known", "items"),
        ({"items": ["i1"], "values": [1.0, 2.0]}, "invalid", None),
        ({"items": ["i1"], "values": [4.0]}, "invalid", None),
        ({"values": [1.0], "fields": {"items": ["i1"]}}, "contradiction", "values"),
        ({"fields": {"age": 3}}, "unknown_field", "fields"),
        ({"fields": {"items": [3]}}, "wrong_type", "fields"),
        ({"items": ["i1"], "part": "heldout"}, "no_part", "part"),
        ({"user": "u1", "part": "validation"}, "no_part", "part"),
        ({"items": ["i1"], "attributes": ["genre"]}, "invalid", None),
        ({"items": ["i1"], "at_most": {"genre": 1}}, "invalid", None),
    ],
)
def test_a_mistake_is_named_and_spoils_no_other_answer(request_, expected, option, engine):
    good = Recommend(items=["i1"])
    first, refused, last = answered(engine, good, Recommend(**request_), good)
    assert first == last == answered(engine, good)[0]
    assert (code(refused), option in (None, refused.option)) == (expected, True)
    assert str(refused).isprintable()


def test_an_answer_says_whether_anything_is_known_of_the_person(engine, world):
    users = [Recommend(user=f"u{row}") for row in range(len(world.rows))]
    baskets = [
        Recommend(items=["i1"]),
        Recommend(items=["x"], unknown="skip"),
        Score(items=["x"], candidates=["i1"], unknown="skip"),
    ]
    found = answered(engine, *baskets, *users)
    assert [answer.is_personal for answer in found] == [True, False, False, *map(bool, world.rows)]
    assert not all(world.rows)
    assert "is_personal" not in json.loads(msgspec.json.encode(*answered(engine, Similar(item="i1"))))


def test_items_that_nobody_had_in_training_tell_nothing_of_a_person(tmp_path):
    """i18 to i23 are described, and have no interactions."""
    data = described(tmp_path / "data")
    plain = network()
    del plain["layers"][1]["described_by"]
    for name, document, knows in (("plain", plain, False), ("described", network(), True)):
        train(document, TRAINING | {"epochs": 1}, data, tmp_path / name)
        engine = Engine.load(tmp_path / name, data, "cpu", None)
        asks = [Recommend(items=["i18", "i23"]), Recommend(items=["i18", "i0"]), Recommend(user="u0")]
        assert [answer.is_personal for answer in answered(engine, *asks)] == [knows, True, True]


@pytest.mark.parametrize("unknown", ["refuse", "skip"])
def test_unknown_ids_of_an_allow_list_have_no_effect_as_in_the_library(unknown, engine, model):
    ask = Recommend(items=["i1"], only=["i9", "newer", "i4"], unknown=unknown)
    (answer,) = answered(engine, ask)
    with pytest.warns(UserWarning, match="newer"):
        found = model.recommend(["i1"], only=ask.only)
    assert pairs(answer) == [(one.item, one.score) for one in found]
    assert answer.unknown == ["newer"]
    for none in ([], ["newer"]):
        with pytest.raises(DataError) as refused:
            model.recommend(["i1"], only=none)
        (answer,) = answered(engine, Recommend(items=["i1"], only=none, unknown=unknown))
        assert str(answer) == str(refused.value)


@pytest.mark.parametrize("is_weighed", [False, True])
def test_a_model_whose_rows_depend_on_their_places_is_refused(is_weighed, world, monkeypatch):
    def moved(*arguments, top_k=module.top_k, **more):
        scores, units = top_k(*arguments, **more)
        scores[3:] += 1e-7 * (is_weighed == (more["factors"] is not None))
        return scores, units

    monkeypatch.setattr(module, "top_k", moved)
    with mistake(FitError, place=world.run("first")):
        Engine.load(world.run("first"), None, "cpu", None)


def test_numbers_that_overflow_refuse_their_row_alone(tmp_path):
    first, middle, last = NETWORK["layers"]
    middle = {**middle, "activation": "linear"}
    layers = [first, middle, {**middle, "name": "wide"}, {**last, "loss": "l2", "activation": "linear"}]
    data = dataset_from_lists(
        tmp_path / "data",
        [[user, user + 1] for user in range(20)],
        values=[[1.0, 2.0]] * 20,
        item_ids=[f"i{item}" for item in range(WIDTH)],
    )
    train({"layers": layers}, {"epochs": 1, "shards": 3}, data, tmp_path / "run")
    engine, good = Engine.load(tmp_path / "run", None, "cpu", None), Recommend(items=["i1"])
    huge = {"items": [f"i{item}" for item in range(WIDTH)], "values": [3.4e38] * WIDTH}
    asks = good, Recommend(**huge, include_seen=True), Score(**huge, candidates=["i3", "i4"]), good
    before, *refused, after = answered(engine, *asks)
    assert before == after == answered(engine, good)[0]
    assert [*map(code, refused)] == ["overflow"] * 2


def test_every_batching_of_rules_gives_the_bits_of_recommend(ruled):
    engine, model, data = ruled
    random, asks, expected = np.random.default_rng(2), [], []
    for user in random.permutation(70).tolist():
        rules = [
            {},
            {"at_most": {"genre": 2}},
            {"where": {"in_stock": True}},
            {"at_most": {"genre": 1}},
            {"weights": {"i3": 0.0, f"i{user % 3}": 2.5}},
        ][user % 5]
        if user % 8 == 7:
            rules = {"at_most": {"genre": 1}, "where": {"genre": ["g1", "g2"]}}
            rules["weights"] = {"i6": 3.0}
        k = int(random.integers(1, 30))
        if user % 2:
            asks.append(Recommend(user=f"u{user}", k=k, **rules))
            found = model.recommend(users=f"u{user}", data=data, k=k, **rules)
        else:
            asks.append(Recommend(items=[f"i{user}"], k=k, **rules))
            found = model.recommend([f"i{user}"], k=k, **rules)
        expected.append([(row.item, row.score) for row in found])
    assert [pairs(answer) for answer in answered(engine, *asks)] == expected
    for ask, alone in zip(asks[:9], expected[:9], strict=True):
        assert pairs(answered(engine, ask)[0]) == alone


def test_a_part_is_recommended_as_predict_does_and_listed(engine, model, world):
    expected, usual = (
        predicted(model, world.data, k=WIDTH, part="heldout"),
        predicted(model, world.data, k=WIDTH),
    )
    asks = [Recommend(user=f"u{row}", k=WIDTH, part=part) for row in range(20) for part in ("heldout", None)]
    answers = answered(engine, *asks)
    for row in range(20):
        before, now = answers[2 * row : 2 * row + 2]
        assert pairs(before) == expected[f"u{row}"]
        assert pairs(now) == usual[f"u{row}"]
        assert [(each.item, each.title) for each in before.held_out] == [(f"i{row}", f"Title {row}")]
        assert now.held_out is msgspec.UNSET
    assert expected != usual


def test_explanations_are_those_of_the_library_in_the_same_bits(engine, world, tmp_path):
    middle = {"name": "mid", "units": 8, "activation": "linear"}
    layers = [NETWORK["layers"][0], middle, NETWORK["layers"][2]]
    train({"layers": layers}, {"epochs": 1, "shards": 3}, world.data, tmp_path / "run")
    linear, model = (
        Engine.load(tmp_path / "run", world.data, "cpu", None),
        Model.load(tmp_path / "run", "cpu"),
    )
    assert (linear.about.can_explain, engine.about.can_explain) == (True, False)
    basket, user = answered(linear, Explain(item="i7", items=["i3", "i200"]), Explain(item="i7", user="u4"))
    assert pairs(basket) == [(one.item, one.score) for one in model.explain("i7", ["i3", "i200"])]
    assert pairs(user) == [(one.item, one.score) for one in model.explain("i7", user="u4", data=world.data)]
    assert len(user.items) == len(world.rows[4])
    for wrong, expected in (
        (Explain(item="i999", items=["i3"]), "unknown_item"),
        (Explain(item="i7", user="nobody"), "unknown_user"),
        (Explain(item="i7"), "nothing_known"),
    ):
        assert code(answered(linear, wrong)[0]) == expected
    (refused,) = answered(engine, Explain(item="i7", items=["i3"]))
    assert code(refused) == "invalid"
