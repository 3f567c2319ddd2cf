"""Layers of DSSTNE's documents: windows, sides and channels."""

import pytest

from widenet.dsstne.spec.network import translation
from widenet.spec.network import NetworkSpec

INPUT = {"Kind": "Input", "Name": "In", "DataSet": "sound"}
CONVOLUTION = {"Kind": "Hidden", "Name": "C", "Type": "Convolutional", "N": 4, "Activation": "Relu"}
OUTPUT = {"Kind": "Output", "Name": "Out", "N": 11, "DataSet": "class"}


def layers_of(*layers, **network):
    found = translation({"Layers": list(layers), **network}, "config.json")
    NetworkSpec.of(found.network)
    return found.network["layers"]


@pytest.mark.parametrize(
    ("sides", "kernel", "shape"),
    [
        ([12, 3], 5, [3, 12]),
        ([12, 10], [5, 3], [1, 10, 12]),
        ([12, 10, 3], [5, 3], [3, 10, 12]),
        ([6, 5, 4], [3, 3, 3], [1, 4, 5, 6]),
        ([6, 5, 4, 2], [3, 3, 3], [2, 4, 5, 6]),
    ],
)
def test_channels_of_an_input_are_the_side_after_the_axes_of_the_kernel(sides, kernel, shape):
    first = {**INPUT, "N": sides}
    assert layers_of(first, {**CONVOLUTION, "Kernel": kernel}, OUTPUT)[0]["shape"] == shape
    other = {"Kind": "Hidden", "Name": "H", "N": 2, "Source": "In"}
    assert (
        layers_of(
            first, other, {**CONVOLUTION, "Kernel": kernel, "Source": "In"}, {**OUTPUT, "Source": ["H", "C"]}
        )[0]["shape"]
        == shape
    )


def test_weights_of_an_output_that_skips_are_shared_by_the_layer_that_has_them():
    shared = {"InputLayer": "G", "SourceInputLayer": "F", "SourceOutputLayer": "Out"}
    found = layers_of(
        INPUT,
        {"Name": "H", "N": 7},
        {"Name": "G", "N": 7, "Source": "H"},
        {"Name": "F", "N": 7, "Source": "G", "SharedWeights": [shared]},
        {**OUTPUT, "Skip": "G", "N": 7, "Source": "F"},
    )
    assert found[3]["weights"] == {
        "layer": "Out summed",
        "layer_source": "F",
        "source": "G",
        "transposed": False,
    }
