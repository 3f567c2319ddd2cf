"""The units of a trained network's layers as vectors."""

import numpy as np
import pytest

from tests.mistakes import mistake
from tests.rows import all_rows
from tests.trainings import DEEP, TIED, UNTIED, WEIGHTLESS, WIDTH, books
from widenet.errors import FitError
from widenet.knn.neighbours import Neighbours
from widenet.runs import train

TRAINING = {"epochs": 1, "batch_size": 5, "shards": 3}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    data = books(folder / "data")
    roomy = {"layers": [*UNTIED["layers"][:2], {**UNTIED["layers"][2], "units": WIDTH + 9}]}
    documents = {"untied": UNTIED, "tied": TIED, "roomy": roomy, "weightless": WEIGHTLESS, "deep": DEEP}
    return {
        name: train(network, TRAINING, data, folder / name, device="cpu")
        for name, network in documents.items()
    }


def weights(model, name):
    return all_rows(model.network.wide[name]).numpy()


@pytest.mark.parametrize(
    ("name", "layer", "weight"),
    [
        ("untied", None, "next"),
        ("untied", "history", "taste/history"),
        ("tied", "next", "taste/history"),
        ("tied", "history", "taste/history"),
        ("roomy", "next", "next"),
    ],
)
def test_a_layer_gives_the_rows_of_its_weight_under_the_ids_of_its_field(name, layer, weight, models):
    model = models[name]
    found = Neighbours.of_model(model, layer)
    assert (len(found), found.keys.to_pylist()) == (WIDTH, [f"{item}" for item in range(WIDTH)])
    rows = weights(model, weight)[:WIDTH]
    np.testing.assert_array_equal(found.vectors(np.arange(WIDTH)), rows)
    alike = Neighbours.of(rows, measure="cosine")
    np.testing.assert_array_equal(found.search(rows, 5), alike.search(rows, 5))


@pytest.mark.parametrize(
    ("name", "layer"),
    [("deep", "taste"), ("untied", "no such layer"), ("weightless", None), ("weightless", "next")],
)
def test_layers_without_vectors_are_refused(name, layer, models):
    with mistake(FitError):
        Neighbours.of_model(models[name], layer)
