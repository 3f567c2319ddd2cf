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
EDGES = {"type": 1, **WINDOW, "Ny": 6, "Nz": 4, "dimensions": 3}


@pytest.mark.parametrize(
    ("function", "best"),
    [(1, lambda x: x.max((2, 4))), (2, lambda x: x.mean((2, 4)))],
    ids=["max", "average"],
)
def test_an_output_that_pools(function, best, tmp_path):
    random = np.random.default_rng(11)
    weights, bias = random.normal(size=(4, 2, 3, 3)).astype("f4"), random.normal(size=4).astype("f4")
    pool = {**POOL, "poolingfunction": function, "Ny": 3, "Nz": 4, "dimensions": 3}
    layers = [
        fully("Image", "Input", 8, data="image", more={"Ny": 6, "Nz": 2, "dimensions": 3}),
        fully("Edges", "Hidden", 8, ["Image"], activation="Tanh", more=EDGES),
        fully("Output", "Output", 4, ["Edges"], activation="Linear", data="class", more=pool),
    ]
    images = random.normal(size=(3, 96)).astype("f4")
    edges = [np.tanh(convolved(image.reshape(2, 6, 8), weights, bias, 1)) for image in images.astype(float)]
    truth = [best(each.reshape(4, 3, 2, 4, 2)).ravel() for each in edges]
    written = write_model(
        tmp_path / "x.nc", layers, {("Image", "Edges"): (weights, bias)}, errorFunction=np.uint32(1)
    )
    before = import_model(written, tmp_path / "run")
    assert [layer.kind for layer in before.run.network.layers] == [
        "input",
        "convolution",
        "pooling",
        "output",
    ]
    np.testing.assert_allclose(scores(before, {"Image": images}), truth, rtol=2e-5, atol=2e-6)
    export_model(before, tmp_path / "y.nc")
    after = import_model(tmp_path / "y.nc", tmp_path / "again")
    assert after.fingerprint() == before.fingerprint()
    assert after.run.network.layers == before.run.network.layers
