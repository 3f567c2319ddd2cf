"""A network begins with the weights of another run that have equal names and sizes; the rest is named."""

import pytest
import torch

from tests.starts import begun, made, rows
from tests.trainings import SETTINGS, UNTIED, books
from widenet.runs import Model
from widenet.training.run_directory import RunDirectory


def taste(**more):
    return {"layers": [UNTIED["layers"][0], {**UNTIED["layers"][1], **more}, UNTIED["layers"][2]]}


DEEPER = {"layers": [*UNTIED["layers"][:2], {"name": "deep", "units": 6}, UNTIED["layers"][2]]}


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
