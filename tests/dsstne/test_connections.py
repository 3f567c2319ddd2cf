"""Networks of DSSTNE's whose layers are wired as this project's are not give the scores of their formulas."""

import numpy as np
import pytest

from tests.dsstne.models import connected, forward, fully, write_model
from tests.dsstne.test_model import scores
from widenet.dsstne.model_import import import_model

SPARSE = 1
ROWS = {
    "Input": (
        (np.random.default_rng(1).random((5, 9)) < 0.4)
        * np.random.default_rng(2).normal(size=(5, 9)).astype("f4")
    )
}
L2 = {"errorFunction": np.uint32(1)}


def test_an_output_that_feeds_an_output_and_a_layer_that_feeds_nothing(tmp_path):
    layers = [
        fully("Input", "Input", 9, data="items", attributes=SPARSE),
        fully("First", "Output", 6, ["Input"], activation="Tanh", data="first"),
        fully("Spare", "Hidden", 4, ["First"]),
        fully("Third", "Hidden", 6, ["First"], activation="RectifiedLinear"),
        fully("Second", "Output", 5, ["First", "Third"], activation="Sigmoid", data="second"),
    ]
    connections, notes = connected(3, layers), []
    connections["First", "Third"] = (("First", "Spare"), False), connections["First", "Third"][1]
    layers[2]["units"] = 6
    connections["First", "Spare"] = connected(4, layers)["First", "Spare"]
    model = import_model(
        write_model(tmp_path / "x.nc", layers, connections, **L2), tmp_path / "run", say=notes.append
    )
    truth = forward(layers, connections, ROWS)
    for name in ("First", "Second"):
        np.testing.assert_allclose(scores(model, ROWS, name), truth[name], rtol=2e-5, atol=2e-6)
    assert len(notes) == 2


@pytest.mark.parametrize("activation", ["Tanh", "Linear"])
def test_a_network_without_an_output_gives_the_units_of_its_last_layer(activation, tmp_path):
    layers = [
        fully("Input", "Input", 9, data="items", attributes=SPARSE),
        fully("First", "Hidden", 6, ["Input"], activation="Sigmoid"),
        fully("Last", "Hidden", 4, ["First"], activation=activation),
    ]
    connections = connected(3, layers)
    model = import_model(write_model(tmp_path / "x.nc", layers, connections), tmp_path / "run")
    np.testing.assert_allclose(
        scores(model, ROWS, "Last units"), forward(layers, connections, ROWS)["Last"], rtol=2e-5, atol=2e-6
    )
