"""DSSTNE's networks without outputs, with outputs that feed layers, and with layers that feed nothing."""

from widenet.dsstne.spec.network import translation

INPUT = {"Kind": "Input", "Name": "In", "N": 5, "DataSet": "a"}
HIDDEN = {"Kind": "Hidden", "Name": "H", "N": 4}
OUTPUT = {"Kind": "Output", "Name": "Out", "N": 3, "DataSet": "b"}


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
