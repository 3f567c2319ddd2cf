"""DSSTNE's networks without outputs, with outputs that feed layers, and with layers that feed nothing."""

import pytest

from widenet.dsstne.spec.network import translation
from widenet.spec.network import NetworkSpec

INPUT = {"Kind": "Input", "Name": "In", "N": 5, "DataSet": "a"}
HIDDEN = {"Kind": "Hidden", "Name": "H", "N": 4}
OUTPUT = {"Kind": "Output", "Name": "Out", "N": 3, "DataSet": "b"}


def spoken(*layers, **network):
    found = translation({"Layers": list(layers), **network}, "config.json")
    return NetworkSpec.of(found.network), found.notes


def wires(spec):
    return {layer.name: (spec.sources(layer), getattr(layer, "skip", None) or ()) for layer in spec.layers}


@pytest.mark.parametrize("activation", ["Tanh", "Linear"])
def test_two_consecutive_outputs(activation):
    last = {"Kind": "Output", "Name": "Second", "N": 2, "DataSet": "c"}
    spec, notes = spoken(INPUT, {**OUTPUT, "Activation": activation}, last, ErrorFunction="L2")
    is_linear = activation == "Linear"
    assert wires(spec) == {
        "In": ((), ()),
        "Out summed": (("In",), ()),
        **({} if is_linear else {"Out units": ((), ("Out summed",))}),
        "Out": (("Out summed",), ()),
        "Second": (("Out summed" if is_linear else "Out units",), ()),
    }
    assert len(notes) == 1


def test_shares_follow_an_output_that_feeds_layers():
    shared = {"InputLayer": "H", "SourceInputLayer": "In", "SourceOutputLayer": "Out"}
    layers = [
        {**INPUT, "N": 3},
        OUTPUT,
        {**HIDDEN, "N": 3},
        {**OUTPUT, "Name": "Second", "SharedWeights": shared},
    ]
    found = translation({"Layers": layers}).network["layers"]
    assert found[-1]["weights"]["layer"] == "Out summed"
