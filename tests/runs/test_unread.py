"""What is left unread is said in a line: by a training, and by what is asked of a run."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cli.conftest import widenet  # noqa: F401 a fixture
from tests.described import COLD, described
from tests.trainings import Heard
from widenet.cli.progress import TrainingReport
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.runs import train
from widenet.runs.unread import strangers, unread, unused_repeats
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

ROWS = [[0, 1], [1, 2], [0, 2, 3]]
RATED = [[4.0, 5.0], [1.0, 3.0], [2.0, 2.0, 5.0]]
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 2},
        {"name": "next", "kind": "output", "field": "items", "values": "ignore"},
    ]
}
UNREAD = 'The network does not read the fields "country", "age" of {}.'
LACKS = (
    '{} was trained with values of "items" from 1 to 5; {} has none, so that each of its entries counts as 1.'
)
HAS = '{} was trained without values of "items"; those of {}, from 1 to 5, multiply what it reads.'


def run_of(network, start=None, **training):
    """As much of a run as `unread` reads."""
    return SimpleNamespace(network=NetworkSpec.of(network), training=TrainingSpec.of(training), start=start)


@pytest.fixture
def plain(tmp_path):
    return dataset_from_lists(tmp_path / "plain", ROWS, heldout=[[2], [0], []], width=4)


@pytest.fixture
def rated(tmp_path):
    return dataset_from_lists(tmp_path / "rated", ROWS, heldout=[[2], [0], []], values=RATED, width=4)


@pytest.mark.parametrize("cold", [0, COLD])
def test_descriptions_are_advised_only_where_an_item_has_no_interactions(cold, tmp_path):
    data = described(tmp_path / "data", cold=cold)
    assert bool((data.counts("items") == 0).any()) == bool(cold)
    said = [line for line in unread(run_of(NETWORK), data) if "descriptions" in line]
    assert len(said) == bool(cold)


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"l2": 0.1},
        {"optimizer": {"kind": "adamw"}},
        {"start": Path("other")},
    ],
    ids=lambda training: next(iter(training), "usual"),
)
def test_descriptions_are_advised_only_where_a_training_takes_them(training, tmp_path):
    data = described(tmp_path / "data")
    (said,) = unread(run_of(NETWORK, **training), data)
    new = "new " * ("start" in training)
    assert said.startswith(
        f"The network does not read the descriptions of items, so it knows nothing of {new}items without"
        " interactions."
    )
    assert ('add "described_by": ["genre", "price"] to the layer "taste".' in said) == (not training)


REPEATS = {
    "layers": [
        {"name": "session", "kind": "input", "field": "items"},
        {"name": "state", "kind": "recurrent", "units": 2},
        {"name": "next", "kind": "output", "field": "items", "predict": "next", "repeats": [0, 1]},
        {"name": "other", "kind": "output", "source": "state", "field": "items", "predict": "next"},
    ]
}


@pytest.mark.parametrize(
    ("training", "has_note"),
    [
        ({}, False),
        ({"evaluation": {"output": "next"}}, True),
        ({"evaluation": {"output": "other"}}, False),
        ({"evaluation": {"output": "next", "seen": "include"}}, False),
    ],
)
def test_repeats_without_effect_on_evaluations_are_noted(training, has_note):
    assert unused_repeats(run_of(REPEATS, **training)) == has_note * [
        'The "repeats" of the layer "next" have no effect on evaluations, which leave out what a sequence has'
        ' already. To count it, add "seen": "include" to "evaluation".'
    ]


def test_a_training_notes_repeats_without_effect(tmp_path):
    data = dataset_from_lists(tmp_path / "data", ROWS, validation=[[3], [3], [3]], width=4, sequence=True)
    network = {"layers": REPEATS["layers"][:3]}
    heard = Heard()
    training = {"epochs": 1, "evaluation": {"metric": "ndcg@1"}}
    model = train(network, training, data, tmp_path / "run", report=heard)
    assert heard.said == unused_repeats(model.run)
    assert model.ignored() == []


def test_descriptions_are_advised_for_the_first_layer_that_takes_them(tmp_path):
    history, taste, output = NETWORK["layers"]
    frozen = {"layers": [history, {**taste, "frozen": True}, output]}
    (said,) = unread(run_of(frozen), described(tmp_path / "data"))
    assert said.endswith('to the layer "next".')


def test_frozen_layers_with_initial_weights_are_named(plain, tmp_path):
    frozen = {
        "layers": [NETWORK["layers"][0], {**NETWORK["layers"][1], "frozen": True}, NETWORK["layers"][2]]
    }
    heard, training = Heard(), {"epochs": 1, "shards": 1}
    train(NETWORK, training, plain, tmp_path / "base")
    train(frozen, training, plain, tmp_path / "alone", report=heard)
    train(frozen, training, plain, tmp_path / "started", start_from=tmp_path / "base", report=heard)
    assert [line for line in heard.said if line.startswith("Frozen")] == [
        'Frozen with the weights of its initializer: "taste". `start_from` takes those of a run.'
    ]


def test_fields_that_the_network_does_not_read_are_said_by_training_prediction_and_evaluation(
    widenet,  # noqa: F811
    tmp_path,
    capsys,
):
    side = {"sparse": {"country": [[0], [1], [0]]}, "dense": {"age": [[0.1], [0.2], [0.3]]}}
    data = dataset_from_lists(tmp_path / "data", ROWS, heldout=[[2], [0], []], width=4, **side)
    train(NETWORK, {"epochs": 1, "shards": 1}, data, tmp_path / "run", report=TrainingReport())
    said = UNREAD.format(tmp_path / "data") + "\n"
    assert capsys.readouterr().err.startswith(said)
    out = tmp_path / "out.csv"
    assert widenet("predict", tmp_path / "run", "--data", tmp_path / "data", "--out", out).err == said
    assert widenet("evaluate", tmp_path / "run", "--data", tmp_path / "data", "--json").err == said
    assert (
        widenet("recommend", tmp_path / "run", "--data", tmp_path / "data", "--user", "0", "--json").err
        == said
    )


def test_descriptions_of_items_that_no_layer_reads_are_said(tmp_path):
    items = {"id": ["a", "b", "c"], "genre": ["x", "y", "x"], "price": [1.0, 2.0, 3.0]}
    data = ingest(
        [("u", "a"), ("v", "b")],
        tmp_path / "data",
        items=items,
        items_sparse={"genre": "genre"},
        items_dense={"price": ["price"]},
    )
    (said,) = unread(run_of(NETWORK), data)
    assert said.endswith('add "described_by": ["genre", "price"] to the layer "taste".')
    layers = [dict(layer) for layer in NETWORK["layers"]]
    layers[1]["described_by"] = "genre"
    assert unread(run_of({"layers": layers}), data) == []


@pytest.mark.parametrize("values", ["use", "ignore"])
@pytest.mark.parametrize("trained_rated", [True, False])
@pytest.mark.parametrize("asked_rated", [True, False])
def test_values_that_only_the_training_or_the_dataset_has_are_said_where_the_network_reads_them(
    values, trained_rated, asked_rated, plain, rated, tmp_path
):
    history, *others = NETWORK["layers"]
    network = {"layers": [{**history, "values": values}, *others]}
    model = train(network, {"epochs": 1, "shards": 1}, rated if trained_rated else plain, tmp_path / "run")
    asked = rated if asked_rated else plain
    differs = values == "use" and trained_rated != asked_rated
    assert model.ignored(asked) == (
        [(LACKS if trained_rated else HAS).format(tmp_path / "run", asked.path)] if differs else []
    )
    had = '"items" had values from 1 to 5 in training; what is named here counts as 1.'
    assert model.doubts(["1"]) == ([had] if trained_rated and values == "use" else [])


@pytest.fixture
def partly(tmp_path):
    """Users of whom nothing, something, and nothing is known; a run over them."""
    data = dataset_from_lists(
        tmp_path / "partly", [[], [1, 2], []], ids=["new", "old", "newer"], heldout=[[2], [0], []], width=4
    )
    return data, train(NETWORK, {"epochs": 1, "shards": 1}, data, tmp_path / "partly-run")


NOTHING = "The network knows nothing of {}: their recommendations are not personal."


def test_recommendations_that_are_not_personal_are_said(partly, widenet, tmp_path):  # noqa: F811
    data, model = partly
    for users, who in (("new", 'user "new"'), (["old", "newer"], '1 of 2 users, such as "newer"')):
        with pytest.warns(UserWarning, match="knows nothing") as caught:
            model.recommend(users=users)
        assert [str(each.message) for each in caught] == [NOTHING.format(who)]
        assert caught[0].filename == __file__
    model.recommend(users="old")
    model.recommend(users="new", fields={"items": ["1"]})
    said = widenet("recommend", model.run.path, "--user", "new").err
    assert NOTHING.format('user "new"') in said.splitlines()
    assert "knows nothing" not in widenet("recommend", model.run.path, "--user", "old").err
    out = tmp_path / "out.csv"
    said = widenet("predict", model.run.path, "--data", data.path, "--out", out).err
    assert NOTHING.format('2 of 3 users, such as "new"') in said.splitlines()


def test_items_that_nobody_had_in_training_are_not_personal_unless_described(tmp_path, widenet):  # noqa: F811
    items = {"id": ["a", "b", "c", "d"], "genre": ["x", "y", "x", "y"]}
    log = [(user, item) for user in "uvw" for item in "ab"]
    data = ingest(log, tmp_path / "data", items=items, items_sparse={"genre": "genre"})
    training = {"epochs": 1, "shards": 1}
    plain = train(NETWORK, training, data, tmp_path / "plain")
    with pytest.warns(UserWarning, match="Nobody had these items in training") as caught:
        plain.recommend(["c", "d"])
    assert caught[0].filename == __file__
    plain.recommend(["c", "a"])
    said = widenet("recommend", plain.run.path, "--items", "c").err
    assert "Nobody had these items in training, and the network does not read descriptions of them" in said
    train(None, training, data, tmp_path / "described").recommend(["c", "d"])
    train(NETWORK, training, data, tmp_path / "next", start_from=plain.run.path).recommend(["c"])


ASIDE = (
    "{} has these items, but only in its {}, which the training did not see, and the network does not read"
    " descriptions of them: the recommendations are not personal. To learn them, {}."
)
WHOLE = "train on a dataset whose training part has them, such as the one before its split"


def test_items_that_are_set_aside_are_not_said_to_be_nobodys(tmp_path, widenet):  # noqa: F811
    ends = {"validation": [[2], []], "heldout": [[], [3, 2]], "width": 5}
    data = dataset_from_lists(tmp_path / "data", [[0, 1], [0]], **ends)
    model = train(NETWORK, {"epochs": 1, "shards": 1}, data, tmp_path / "run")
    both, heldout = "validation part and heldout part", "heldout part"
    for basket, where in ((["2"], both), (["3"], heldout), (["3", "2"], both)):
        with pytest.warns(UserWarning, match="has these items, but only") as caught:
            model.recommend(basket)
        assert [str(each.message) for each in caught] == [ASIDE.format(data.path, where, WHOLE)]
    assert model.doubts(["0", "3"]) == []
    said = widenet("recommend", model.run.path, "--items", "3").err
    assert ASIDE.format(data.path, heldout, WHOLE) in said.splitlines()
    for basket in (["4"], ["3", "4"]):
        assert model.doubts(basket)[0].startswith("Nobody had these items in training,")
    data.path.rename(tmp_path / "elsewhere")
    assert model.doubts(["3"])[0].startswith("Nobody had these items in training,")
    dataset_from_lists(tmp_path / "data", [[0, 1, 3], [0]], **ends)  # which has it in the training part
    assert model.doubts(["3"])[0].startswith("Nobody had these items in training,")


@pytest.mark.parametrize("also_heldout", [False, True])
def test_items_that_a_training_has_set_aside_are_learnt_without_a_validation_part(
    also_heldout,
    tmp_path,
    widenet,  # noqa: F811
):
    log = [(user, item, time) for user in "uvw" for time, item in enumerate("ab")] + [("u", "late", 9)]
    names = {"user": "user", "item": "item", "time": "time"}
    table = dict(zip(names, map(list, zip(*log, strict=True)), strict=True))
    later = {"user": ["v"], "item": ["late"], "time": [10]} if also_heldout else None
    data = ingest(table, tmp_path / "data", heldout=later, **names, keep_times=True)
    model = train(NETWORK, None, data, tmp_path / "run", report=Heard())
    said = widenet("recommend", model.run.path, "--items", "late").err
    remedy = "train with --no-validation"
    where = "validation part and heldout part" if also_heldout else "validation part"
    assert ASIDE.format(tmp_path / "run" / "data", where, remedy) in said.splitlines()


def test_a_user_is_known_by_numbers_or_by_the_earlier_parts_of_a_sequence(tmp_path):
    rows = np.arange(2)
    numbers = dataset_from_lists(tmp_path / "numbers", [[], [1]], dense={"age": [[0.0], [1.0]]}, width=2)
    history, taste, output = NETWORK["layers"]
    age = {"name": "was", "kind": "input", "field": "age"}
    layers = [history, age, {**taste, "source": ["history", "was"]}, output]
    assert strangers(NetworkSpec.model_validate_json(json.dumps({"layers": layers})), numbers, rows) == []
    network = NetworkSpec.model_validate_json(json.dumps(NETWORK))
    assert strangers(network, numbers, rows) == [NOTHING.format('1 of 2 users, such as "0"')]
    ends = {"heldout": [[2], [0]], "width": 3, "sequence": True}
    sequence = dataset_from_lists(tmp_path / "sequence", [[], [1]], **ends)
    assert strangers(network, sequence, rows) == []
    assert strangers(network, sequence, rows, "heldout") == [NOTHING.format('1 of 2 users, such as "0"')]


def test_a_field_of_one_item_is_said(tmp_path):
    alone = dataset_from_lists(tmp_path / "alone", [[0], [0]], item_ids=["a"])
    said = Heard()
    train(None, {"epochs": 1, "shards": 1}, alone, tmp_path / "run", report=said)
    assert (
        'The field "items" has one item alone: nothing else can be recommended to those who have it.'
        in said.said
    )
