"""The repeats of an output: against plain loops, in every batch, run and group."""

import pytest
import torch

from widenet.data.lists import dataset_from_lists
from widenet.parallel.exchange import fixed_arithmetic
from widenet.predict.top_k import layer_values, top_k
from widenet.runs import train
from widenet.sparse import SparseBatch

WIDTH, SHARDS = 29, 3
ROWS = [
    [(row * row + step * step % 6 * (1 + row % 5)) % WIDTH for step in range(row % 9)] for row in range(80)
]
NUMBERS = [-0.5, 4.0, 2.0]
TRAINING = {"epochs": 1, "batch_size": 16, "shards": SHARDS}


def network(**options):
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "items", "last": 5},
            {"name": "mid", "units": 6, "activation": "linear", "bias": False},
            {"name": "state", "kind": "attention"},
            {"name": "out", "kind": "output", "field": "items", "predict": "next", "cosine": {}, **options},
        ]
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows = [[(row * 7 + 3) % WIDTH] for row in range(len(ROWS))]
    folder = tmp_path_factory.mktemp("repeats") / "data"
    return dataset_from_lists(folder, ROWS, validation=rows, width=WIDTH, sequence=True)


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory):
    return train(network(), TRAINING, data, tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    return train(network(repeats=NUMBERS), TRAINING, data, tmp_path_factory.mktemp("repeats") / "run")


def logits(model, rows):
    """The logits in the order of units; under a softmax, values of a layer are its probabilities."""
    with fixed_arithmetic():
        values = layer_values(model.network, {"items": SparseBatch.from_lists(rows)}, "out")
        return torch.cat([*values], dim=1).double().log()


def expected(rows, numbers):
    found = torch.zeros(len(rows), WIDTH, dtype=torch.float64)
    for row, features in enumerate(rows):
        for feature in set(features):
            back = features[::-1].index(feature)
            found[row, feature] = numbers[min(back, len(numbers) - 1)]
    return found


def test_every_feature_of_a_sequence_gets_the_number_of_its_newest_position(model, plain):
    before = logits(plain, ROWS)
    after = torch.log_softmax(before + expected(ROWS, NUMBERS), dim=1)
    torch.testing.assert_close(logits(model, ROWS), after, rtol=0, atol=1e-5)


def test_training_and_its_loss_are_those_without_them(model, plain):
    assert model.fingerprint() == plain.fingerprint()
    assert [record["loss"] for record in model.run.records()] == [
        record["loss"] for record in plain.run.records()
    ]


def best(model, excluded=None):
    with fixed_arithmetic():
        batch = {"items": SparseBatch.from_lists(ROWS)}
        return top_k(model.network, batch, "out", 6, excluded, scores=False)[1]


def test_rankings_have_them_and_may_leave_the_sequence_out(model, plain):
    by_logit = (logits(plain, ROWS) + expected(ROWS, NUMBERS)).argsort(dim=1, descending=True, stable=True)
    assert torch.equal(best(model), by_logit[:, :6])
    assert not torch.equal(best(model), best(plain))
    own = SparseBatch.from_lists([sorted({*row}) for row in ROWS])
    assert torch.equal(best(model, own), best(plain, own))
