"""A network begins with the weights of another run that have equal names and sizes; the rest is named."""

import pytest
import torch

from tests.mistakes import mistake
from tests.parallel.matrix import write_data
from tests.parallel.split import DIVIDED
from tests.starts import CATALOGUES, begun, grown, made, rows, state_of_filters
from tests.trainings import SETTINGS, UNTIED, books, document
from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError
from widenet.runs import Model, train
from widenet.training.run_directory import RunDirectory


def taste(**more):
    return {"layers": [UNTIED["layers"][0], {**UNTIED["layers"][1], **more}, UNTIED["layers"][2]]}


DEEPER = {"layers": [*UNTIED["layers"][:2], {"name": "deep", "units": 6}, UNTIED["layers"][2]]}
REFUSED = {
    "units": taste(units=7),
    "names": {
        "layers": [
            UNTIED["layers"][0],
            {"name": "other", "units": 6},
            {**UNTIED["layers"][2], "name": "last"},
        ]
    },
}


@pytest.mark.parametrize("refused", REFUSED)
def test_a_run_of_other_layers_is_refused_and_says_which_weights_differ(refused, before, tmp_path):
    with mistake(CheckpointError, place=before("momentum")):
        begun(
            tmp_path,
            REFUSED[refused],
            SETTINGS["momentum"][1],
            grown(tmp_path / "data", CATALOGUES["grown"]),
            before("momentum"),
        )


LABEL = {"name": "label", "kind": "output", "field": "label", "source": "taste"}
PARTLY = {
    "a layer more": (
        DEEPER,
        ["deep/taste", "deep bias"],
        [],
    ),
    "a bias less": (
        taste(bias=False),
        [],
        ["taste bias"],
    ),
    "another head": (
        {"layers": [*UNTIED["layers"][:2], LABEL]},
        ["label", "label bias"],
        ["next", "next bias"],
    ),
}


@pytest.mark.parametrize("change", PARTLY)
def test_weights_of_the_same_names_and_sizes_are_taken_and_the_rest_is_named(change, before, tmp_path):
    (network, left, unused), training = PARTLY[change], SETTINGS["momentum"][1] | {"evaluation": None}
    data = labelled(tmp_path / "data")
    net, said = begun(tmp_path, network, training, data, before("momentum"))
    [sentence] = said
    assert all(name in sentence for name in [*left, *unused])
    old, fresh = Model.load(before("momentum")).network, made(network, training, data)
    last = made(SETTINGS["momentum"][0], training, books(tmp_path / "old"))
    RunDirectory.open(before("momentum")).latest().load_into(last, with_state=True)
    for (name, key), found in rows(net).items():
        source = fresh if name in left else old if key == "weight" else last
        assert torch.equal(found, rows(source)[name, key]), (name, key)
    for name, weight in net.trunk.items():
        assert torch.equal(weight.tensor, (fresh if name in left else old).trunk[name].tensor)
        for key, state in weight.state.items():
            assert torch.equal(state, (fresh if name in left else last).trunk[name].state[key])


def labelled(path):
    return books(path, sparse={"label": [[number % 4] for number in range(23)]})


def test_state_that_a_frozen_layer_did_not_have_begins_with_zeros(tmp_path):
    data, training = books(tmp_path / "data"), document({"kind": "adam", "learning_rate": 0.1})
    train(taste(frozen=True), training, data, tmp_path / "before")
    net, said = begun(tmp_path, UNTIED, training, data, tmp_path / "before")
    assert len(said) == 1
    state = {name: tensor for (name, key), tensor in rows(net).items() if key == "state.mean"}
    assert bool(state["next"].any())
    assert not bool(state["taste/history"].any())
    assert not any(tensor.any() for tensor in net.trunk["taste bias"].state.values())


def test_filters_in_pieces_beside_others_of_another_size_begin_with_their_state(tmp_path):
    (tmp_path / "data").mkdir()
    data = Dataset.open(write_data(tmp_path / "data") / "pictures")
    layers, training = DIVIDED
    training = {**training, "optimizer": "adam", "keep": "last"}
    train({"layers": layers}, training, data, tmp_path / "before")
    old = made({"layers": layers}, training, data)
    RunDirectory.open(tmp_path / "before").latest().load_into(old, with_state=True)
    changed = [{**layer, "kernel": 5} if layer["name"] == "parts" else layer for layer in layers]
    net, said = begun(tmp_path, {"layers": changed}, training, data, tmp_path / "before")
    assert "parts/best" in said[0]
    found, expected = state_of_filters(net), state_of_filters(old)
    for key, numbers in found.items():
        taken = key[0] != "parts/best"
        assert bool(numbers.any()) == taken, key
        assert not taken or torch.equal(numbers, expected[key])
