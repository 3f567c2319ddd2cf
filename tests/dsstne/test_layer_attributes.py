"""DSSTNE's outputs that pool, convolve or skip are two layers here: one that gives the units, and an
output that takes them.
"""

import numpy as np
import pytest

from tests.dsstne.models import fully, write_model
from tests.dsstne.test_model import convolved, scores
from widenet.dsstne.model_export import export_model
from widenet.dsstne.model_import import import_model

WINDOW = {"kernelX": 3, "kernelY": 3, "kernelStrideX": 1, "kernelStrideY": 1, "kernelDimensions": 2}
POOL = {"type": 2, "kernelX": 2, "kernelY": 2, "kernelStrideX": 2, "kernelStrideY": 2, "kernelDimensions": 2}
VOLUME = {"Ny": 6, "Nz": 4, "dimensions": 3}
IMAGE = fully("Image", "Input", 8, data="image", more={"Ny": 6, "Nz": 2, "dimensions": 3})
EDGES = fully("Edges", "Hidden", 8, ["Image"], activation="Tanh", more={"type": 1, **WINDOW, **VOLUME})


def drawn(shapes):
    rng = np.random.default_rng(11)
    return {
        key: (rng.normal(size=shape).astype("f4"), rng.normal(size=units).astype("f4"))
        for key, (shape, units) in shapes.items()
    }


def assert_same_and_written_back(tmp_path, layers, connections, inputs, truth, kinds):
    """It gives the scores, and comes back from a file as it was; kinds: those of the layers that are made
    of it.
    """
    before = import_model(
        write_model(tmp_path / "x.nc", layers, connections, errorFunction=np.uint32(1)), tmp_path / "run"
    )
    assert [layer.kind for layer in before.run.network.layers] == kinds
    np.testing.assert_allclose(scores(before, inputs), truth, rtol=2e-5, atol=2e-6)
    export_model(before, tmp_path / "y.nc")
    after = import_model(tmp_path / "y.nc", tmp_path / "again")
    assert after.fingerprint() == before.fingerprint()
    assert after.run.network.layers == before.run.network.layers


@pytest.mark.parametrize(
    ("function", "best"),
    [(1, lambda x: x.max((2, 4))), (2, lambda x: x.mean((2, 4)))],
    ids=["max", "average"],
)
def test_an_output_that_pools(function, best, tmp_path):
    connections = drawn({("Image", "Edges"): ((4, 2, 3, 3), 4)})
    last = fully("Output", "Output", 4, ["Edges"], activation="Linear", data="class")
    last["more"] = {**POOL, "poolingfunction": function, "Ny": 3, "Nz": 4, "dimensions": 3}
    images = np.random.default_rng(1).normal(size=(3, 96)).astype("f4")
    edges = [
        np.tanh(convolved(image.reshape(2, 6, 8), *connections["Image", "Edges"], 1))
        for image in images.astype(float)
    ]
    truth = [best(each.reshape(4, 3, 2, 4, 2)).ravel() for each in edges]
    kinds = ["input", "convolution", "pooling", "output"]
    assert_same_and_written_back(tmp_path, [IMAGE, EDGES, last], connections, {"Image": images}, truth, kinds)
