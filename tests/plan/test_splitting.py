"""Which hidden layers are split: the large ones, unless the document says otherwise."""

import pytest

from widenet.plan.binding import bind
from widenet.plan.layout import Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

FIELDS = {"items": Width(50), "song": Width(50, kind="sequence")}


def split(units, *, field="items", layer=None, **training):
    """The weights that are split, of two layers of so many units."""
    layers = [
        {"name": "in", "kind": "input", "field": field},
        {"name": "first", "units": units},
        {"name": "second", "units": units, **(layer or {})},
        {"name": "out", "kind": "output", "field": "items"},
    ]
    spec = TrainingSpec.of({"optimizer": "sgd", "batch_size": 128, **training})
    layout = bind(NetworkSpec.of({"layers": layers}), spec, FIELDS)
    assert layout.sharded == [
        *(name for name, weight in layout.weights.items() if weight.wide and not weight.split),
        *(name for name, weight in layout.weights.items() if weight.split),
    ]
    return [name for name, weight in layout.weights.items() if weight.split]


def test_weights_of_16_mebibytes_are_split_and_smaller_ones_are_whole():
    assert split(2048) == ["second/first"]
    assert split(2047) == []


def test_the_layer_may_say_otherwise():
    assert split(2048, layer={"split": False}) == []
    assert split(3, layer={"split": True}) == ["second/first"]


@pytest.mark.parametrize(
    ("batch_size", "optimizer", "expected"),
    [
        (682, "sgd", True),
        (683, "sgd", False),
        (683, "momentum", True),
        (2048, "adam", True),
        (2049, "adam", False),
    ],
)
def test_a_weight_whose_step_would_send_more_than_it_takes_is_whole(batch_size, optimizer, expected):
    """A step sends 12 bytes for each example and unit; weight and state take 4 bytes a number each."""
    assert bool(split(2048, batch_size=batch_size, optimizer=optimizer)) == expected


def recurrent(units, *, last=1, layer=None, **training):
    """The weights that are split, of a network of one recurrent layer over an embedding of so many units."""
    layers = [
        {"name": "in", "kind": "input", "field": "song", "last": last},
        {"name": "item", "units": units},
        {"name": "state", "kind": "recurrent", "units": units, **(layer or {})},
        {"name": "out", "kind": "output", "field": "song", "predict": "next"},
    ]
    spec = TrainingSpec.of({"optimizer": "sgd", "batch_size": 128, **training})
    layout = bind(NetworkSpec.of({"layers": layers}), spec, FIELDS)
    return [name for name, weight in layout.weights.items() if weight.split]


def test_gates_are_split_as_the_units_of_hidden_layers_are():
    both = ["state/item", "state/state"]
    assert recurrent(1183) == both
    assert recurrent(1182) == []
    assert recurrent(1024, layer={"cell": "lstm"}) == both
    assert recurrent(1023, layer={"cell": "lstm"}) == []
    assert recurrent(2048, layer={"split": False}) == []
    assert recurrent(3, layer={"split": True}) == both
