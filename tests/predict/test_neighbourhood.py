"""The neighbourhood term: against dense float64, in every batch, run, group and checkpoint."""

import numpy as np
import pytest
import torch

from widenet.data.lists import dataset_from_lists
from widenet.kernels import neighbour_means as module
from widenet.parallel.exchange import fixed_arithmetic
from widenet.predict.terms import terms_of
from widenet.predict.top_k import layer_values
from widenet.runs import Model, train
from widenet.sparse import SparseBatch

WIDTH, SHARDS = 29, 4
ROWS = [sorted({(row * row + step * (1 + row % 5)) % WIDTH for step in range(row % 9)}) for row in range(80)]
TERM = {"weight": 0.7, "floor": 0.01, "neighbours": 100, "popularity": 0.5}
TRAINING = {"epochs": 1, "batch_size": 16, "shards": SHARDS}


def network(**term):
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "items", "denoise": 0.3},
            {"name": "mid", "units": 5},
            {
                "name": "out",
                "kind": "output",
                "field": "items",
                "activation": "linear",
                "loss": "l2",
                **({"neighbourhood": term} if term else {}),
            },
        ]
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows = [[(row * 7 + 3) % WIDTH] for row in range(len(ROWS))]
    return dataset_from_lists(
        tmp_path_factory.mktemp("neighbourhood") / "data", ROWS, validation=rows, width=WIDTH
    )


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory):
    return train(network(), TRAINING, data, tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    return train(network(**TERM), TRAINING, data, tmp_path_factory.mktemp("term") / "run")


def logits(model, rows):
    with fixed_arithmetic():
        values = layer_values(model.network, {"items": SparseBatch.from_lists(rows)}, "out")
        return torch.cat([*values], dim=1)


def term_of(rows, popularity):
    """The term, dense in float64."""
    matrix = np.zeros((len(ROWS), WIDTH))
    for row, features in enumerate(ROWS):
        matrix[row, features] = 1
    both = matrix.T @ matrix
    length = np.sqrt(np.maximum(both.diagonal(), 1))
    similar = both / length / length[:, None]
    np.fill_diagonal(similar, 0)
    similar *= (both.diagonal() / both.max()) ** popularity
    means = np.array([similar[row].sum(axis=0) / max(len(row), 1) for row in rows])
    return TERM["weight"] * np.log1p(means / TERM["floor"])


@pytest.mark.parametrize("terms", [1, 50, 2**22])
def test_it_adds_the_logarithm_of_the_mean_similarity(terms, model, plain, monkeypatch):
    monkeypatch.setattr(module, "_TERMS", terms)
    found = logits(model, ROWS) - logits(plain, ROWS)
    np.testing.assert_allclose(found, term_of(ROWS, 0.5), rtol=1e-5, atol=2e-6)


def test_training_and_its_loss_are_those_without_it(model, plain):
    assert [record["loss"] for record in model.run.records()] == [
        record["loss"] for record in plain.run.records()
    ]
    for name, weight in model.network.wide.items():
        for shard, part in weight.parts.items():
            assert torch.equal(part.weight, plain.network.wide[name].parts[shard].weight)


CLICKS = [row + row[1:3] for row in ROWS]
HISTORIES = [row + row[:1] for row in ROWS if row]


@pytest.fixture(scope="module")
def clicks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clicks") / "data"
    return dataset_from_lists(folder, CLICKS, width=WIDTH, sequence=True)


def along(**term):
    """A network along a sequence."""
    document = network(**term)
    document["layers"][1:2] = [
        {"name": "mid", "units": 5, "activation": "linear", "bias": False},
        {"name": "state", "kind": "attention"},
    ]
    document["layers"][0].pop("denoise")
    document["layers"][-1] |= {"predict": "next", "activation": "softmax", "loss": "cross_entropy"}
    return document


def check_terms(model, plain, expected):
    """Check the differences of logits, which are known up to a number for each example."""
    found = logits(model, HISTORIES).double().log() - logits(plain, HISTORIES).double().log()
    apart = (found - torch.from_numpy(expected)).numpy()
    np.testing.assert_allclose(apart, np.broadcast_to(apart[:, :1], apart.shape), atol=1e-5)
    assert np.abs(expected - expected[:, :1]).max() > 1


@pytest.fixture(scope="module")
def plain_along(clicks, tmp_path_factory):
    return train(along(), TRAINING, clicks, tmp_path_factory.mktemp("plain along") / "run")


def once(row):
    """Each feature where it occurs last."""
    return [feature for place, feature in enumerate(row) if feature not in row[place + 1 :]]


def term_in_order(histories, popularity, order):
    """The term in order, dense in float64."""
    near, counts = np.zeros((WIDTH, WIDTH)), np.zeros(WIDTH)
    for row in map(once, CLICKS):
        counts[row] += 1
        for place, feature in enumerate(row):
            for distance, other in enumerate(row[place + 1 :], 1):
                near[feature, other] += 1 / distance
                near[other, feature] += order == "use" and 1 / distance
    length = np.sqrt(np.maximum(counts, 1))
    similar = near / length / length[:, None] * (counts / counts.max()) ** popularity
    means = []
    for row in map(once, histories):
        weights = 1 / np.arange(len(row), 0, -1)
        means.append(weights @ similar[row] / weights.sum())
    return TERM["weight"] * np.log1p(np.array(means) / TERM["floor"])


@pytest.mark.parametrize(("order", "is_native"), [("use", True), ("use", False), ("forward", True)])
def test_in_order_near_pairs_and_new_features_count_most(
    order, is_native, clicks, plain_along, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "library_runs", lambda _: is_native)
    expected = term_in_order(HISTORIES, 0.5, order)
    assert np.abs(expected - term_of([row for row in ROWS if row], 0.5)).max() > 1
    model = train(along(**TERM, order=order), TRAINING, clicks, tmp_path / "run")
    check_terms(model, plain_along, expected)


def logits_of_term(model, rows, shard):
    output = model.network.outputs["out"]
    found = torch.zeros(len(rows), output.weight.shards.size(shard))
    with fixed_arithmetic():
        [term] = terms_of(output, SparseBatch.from_lists(rows))
        term(found[:, :4], shard, 0)
        term(found[:, 4:], shard, 4)
    return found


@pytest.mark.parametrize("shard", range(SHARDS))
def test_an_example_has_the_same_bits_in_every_batch(shard, model):
    together = logits_of_term(model, ROWS, shard)
    assert together.any()
    for start, stop in [(0, 1), (5, 6), (10, 77)]:
        assert torch.equal(logits_of_term(model, ROWS[start:stop], shard), together[start:stop])


def used(out, data):
    model = Model.load(out)
    ranked = [(block.items, block.scores.tolist()) for block in model.predict(data, k=6)]
    return model.fingerprint(), model.evaluate(data, "validation", ks=[5]), ranked


def trained(data, out):
    train(network(**TERM), TRAINING, data, out)
    return used(out, data)


def test_any_number_of_processes_trains_and_reads_the_same_model(model, plain, data, groups, tmp_path):
    alone = used(model.run.path, data.path)
    assert alone[0] == model.fingerprint() != plain.fingerprint()
    assert alone[2] != used(plain.run.path, data.path)[2]
    assert groups(2)(used, model.run.path, data.path) == [alone] * 2
    assert groups(3)(trained, data.path, tmp_path / "3") == [alone] * 3
