"""What each item of a history adds to a logit, against NumPy and the network itself."""

import numpy as np
import pytest
import torch

from tests.rows import all_rows
from tests.trainings import TIED
from widenet.data.lists import dataset_from_lists
from widenet.model.preparation import damping
from widenet.predict.top_k import Tiles
from widenet.runs import train
from widenet.sparse import SparseBatch

WIDTH = 12
ROWS = [[(user + step) % WIDTH for step in (0, 2, 5, 7)][: 2 + user % 3] for user in range(20)]
TRAINING = {"epochs": 2, "batch_size": 8, "shards": 3}
HISTORY = {"name": "history", "kind": "input", "field": "items"}
LINEAR = {"activation": "linear"}
OUTPUT = {"name": "next", "kind": "output", "field": "items"}
NETWORKS = {
    "cosine, tied, damped": TIED["layers"],
    "linear, mean": [{**HISTORY, "scale": "mean"}, {"name": "taste", "units": 4, **LINEAR}, OUTPUT],
    "deep, unit": [
        {**HISTORY, "scale": "unit", "popularity_damping": 0.5},
        {"name": "taste", "units": 4, **LINEAR, "batch_normalization": True},
        {"name": "deep", "units": 3, **LINEAR},
        {**OUTPUT, "cosine": {"temperature": 0.2, "prediction_temperature": 0.3}},
    ],
    "straight from the items": [{**HISTORY, "scale": "rsqrt"}, OUTPUT],
    "with a neighbourhood": [
        {**HISTORY, "scale": "mean"},
        {"name": "taste", "units": 4, **LINEAR},
        {**OUTPUT, "cosine": {"temperature": 0.2}, "neighbourhood": {"neighbours": 4}},
    ],
    "values ignored": [{**HISTORY, "values": "ignore"}, {"name": "taste", "units": 4, **LINEAR}, OUTPUT],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    values = [[1 + (user + place) % 3 for place in range(len(row))] for user, row in enumerate(ROWS)]
    folder = tmp_path_factory.mktemp("shares") / "data"
    return dataset_from_lists(folder, ROWS, values=values, width=WIDTH)


def without_output_bias(model, batch):
    """The logits without the output's bias, and the lengths by which a cosine divides them."""
    network = model.network
    with torch.no_grad():
        activity = network.forward(network.prepare({"items": batch}))
        output = network.output_for("next", activity)
        tiles = Tiles.of_batch(network, {"items": batch}, "next")
        logits = torch.empty(batch.num_examples, WIDTH)
        for shard in range(3):
            for start, stop in tiles.of(shard):
                units = output.weight.shards.units(shard)[start:stop]
                logits[:, list(units)] = tiles.logits(shard, start, stop)
        length = 1.0
        if output.spec.cosine is not None:
            length = float(activity.values[network.spec.sources(output.spec)[0]].norm())
        return logits[0] - (0 if output.bias is None else all_rows(output.bias)), length


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_numbers_add_up_to_the_logit(kind, data, tmp_path):
    model = train({"layers": NETWORKS[kind]}, TRAINING, data, tmp_path / "run", device="cpu")
    values = None if kind == "values ignored" else [2.0, 1.0, 3.0]
    batch = SparseBatch.from_lists([[1, 4, 9]], None if values is None else [values])
    logit, length = without_output_bias(model, batch)
    nothing, own_length = without_output_bias(model, SparseBatch.from_lists([[]]))
    expected = logit - nothing * own_length / length
    assert (kind in ("cosine, tied, damped", "straight from the items")) == bool((nothing == 0).all())
    for item in (3, 10):
        found = model.explain(item, [1, 4, 9], values=values)
        assert sorted(row.item for row in found) == ["1", "4", "9"]
        scores = [row.score for row in found]
        assert scores == sorted(scores, reverse=True)
        assert sum(scores) == pytest.approx(float(expected[item]), rel=1e-4, abs=1e-5)
    of_user = model.explain(3, user=5)
    row, own = ROWS[5], [1 + (5 + place) % 3 for place in range(len(ROWS[5]))]
    assert of_user == model.explain(3, row, values=own if values else None)


def test_the_default_network_is_explained_as_numpy_does(data, tmp_path):
    model = train({"layers": TIED["layers"]}, TRAINING, data, tmp_path / "run", device="cpu")
    vectors = all_rows(next(iter(model.network.wide.values()))).numpy().astype(np.float64)
    factors = damping(model.run.network.inputs[0], data.counts("items"), WIDTH).numpy()
    parts = vectors[[1, 4, 9]] * factors[[1, 4, 9], None]
    direction = vectors[3] / np.linalg.norm(vectors[3])
    expected = parts @ direction / np.linalg.norm(parts.sum(axis=0)) / 0.1
    shown = {row.item: row.score for row in model.explain("3", ["1", "4", "9"])}
    assert [shown[item] for item in ("1", "4", "9")] == pytest.approx(list(expected), rel=1e-4)
    table = model.explain(3, [1, 4, 9], format="polars")
    assert table.columns == ["item", "because", "score", "rank"]
    assert dict(zip(table["because"], table["score"], strict=True)) == shown


def test_a_term_is_divided_by_the_similarities(data, tmp_path):
    term = {"weight": 0.7, "floor": 0.02, "popularity": 0.5}
    layers = NETWORKS["linear, mean"]
    plain = train({"layers": layers}, TRAINING, data, tmp_path / "plain", device="cpu")
    with_term = [*layers[:-1], {**OUTPUT, "neighbourhood": term}]
    model = train({"layers": with_term}, TRAINING, data, tmp_path / "run", device="cpu")
    has = np.zeros((len(ROWS), WIDTH))
    for row, items in enumerate(ROWS):
        has[row, items] = 1
    count_W = has.sum(axis=0)
    for item in (3, 10):
        similar = (
            (has.T @ has)[item] / np.sqrt(count_W * count_W[item]) * (count_W[item] / count_W.max()) ** 0.5
        )
        similar[item] = 0
        own = similar[[1, 4, 9]]
        expected = own / own.sum() * 0.7 * np.log1p(own.mean() / 0.02)
        before = {row.item: row.score for row in plain.explain(item, [1, 4, 9])}
        after = {row.item: row.score for row in model.explain(item, [1, 4, 9])}
        added = [after[name] - before[name] for name in ("1", "4", "9")]
        assert added == pytest.approx(list(expected), abs=1e-6)
        assert own.any()
