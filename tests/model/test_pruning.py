"""Pruned trainings: those of a dense twin with masks, and the same bits for any number of processes."""

import numpy as np
import pytest
import torch

import widenet
from tests.trainings import SETTINGS, WIDTH, books
from widenet.data.lists import dataset_from_lists
from widenet.model.build import build
from widenet.parallel.local import LocalExchange
from widenet.plan.pruning import Schedule
from widenet.runs import Silence
from widenet.spec.training import Pruning

LIKED = [[user % 7, (3 * user + 1) % 7, (user * user) % 7] for user in range(12)]
ROWS = [sorted(set(row)) for row in LIKED]
UNITS, EPOCHS, RATE, L2 = 6, 16, 0.4, 0.01
PRUNING = {"nonzeros": 2, "start": 0.2, "stop": 0.8}


VECTORS = {"momentum, pruned": ["taste/history", "next"], "adam, tied, pruned": ["taste/history"]}


def rows_of(network, name):
    return torch.cat([rows for _, rows in network.rows(name)])


def network(tied):
    shared = {"weights": {"layer": "mid", "transposed": True}} if tied else {}
    plain = {"activation": "linear", "bias": False}
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": UNITS, **plain},
        {"name": "out", "kind": "output", "field": "items", "bias": False, "loss": "l2", **shared},
    ]
    return {"layers": [*layers[:2], {**layers[2], "activation": "sigmoid"}]}


def twin(first, tied):
    """Weights in float64 after full batches by autograd, each number times its mask."""
    items = torch.zeros(len(ROWS), 7, dtype=torch.float64)
    for user, row in enumerate(ROWS):
        items[user, row] = 1
    weights = [weight.double().requires_grad_() for weight in (first[:1] if tied else first)]
    masks, moments = ([torch.full_like(weight, one) for weight in weights] for one in (1.0, 0.0))
    schedule = Schedule(Pruning(**PRUNING), UNITS)
    for step in range(1, EPOCHS + 1):
        own, others = weights[0] * masks[0], weights[-1] * masks[-1]
        scores = torch.sigmoid(items @ own @ others.T)
        loss = 0.5 * (scores - items).square().sum() / len(items)
        loss = loss + 0.5 * L2 * sum(
            (weight * mask).square().sum() for weight, mask in zip(weights, masks, strict=True)
        )
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for place, gradient in enumerate(gradients):
                moments[place] = 0.9 * moments[place] + gradient
                weights[place] -= RATE * moments[place]
                kept = schedule.kept(step, EPOCHS)
                if kept < schedule.kept(step - 1, EPOCHS):
                    order = (weights[place] * masks[place]).abs().argsort(dim=1, descending=True, stable=True)
                    masks[place] = torch.zeros_like(masks[place]).scatter_(1, order[:, :kept], 1.0)
                moments[place] *= masks[place]
    return [weight.detach() * mask for weight, mask in zip(weights, masks, strict=True)]


@pytest.mark.parametrize("tied", [False, True])
def test_it_is_the_training_of_a_dense_twin_with_masks(tied, tmp_path):
    data = dataset_from_lists(tmp_path / "data", ROWS, width=7)
    training = {
        "epochs": EPOCHS,
        "batch_size": len(ROWS),
        "shards": 3,
        "optimizer": {"kind": "momentum", "learning_rate": RATE, "momentum": 0.9},
        "l2": L2,
        "pruning": PRUNING,
    }
    made, names = (
        widenet.train(network(tied), training, data, tmp_path / "run"),
        ["mid/in", "out"][: 2 - tied],
    )
    begun = build(made.network.layout, LocalExchange(3), counts={"items": np.ones(7)})
    first = [rows_of(begun, name) for name in names]
    for name, expected in zip(names, twin(first, tied), strict=True):
        found = rows_of(made.network, name)
        assert torch.equal(found == 0, expected == 0)
        assert bool(((found != 0).sum(dim=1) == 2).all())
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)


def trained(folder, name, out):
    """What a process gives: the fingerprint, and how many numbers of each vector are not zero."""
    model = widenet.train(*SETTINGS[name], folder / "books", folder / out, report=Silence())
    counts = {weight: (rows_of(model.network, weight) != 0).sum(dim=1).tolist() for weight in VECTORS[name]}
    return model.fingerprint(), counts


@pytest.mark.parametrize("name", VECTORS)
def test_several_processes_give_the_bits_of_one(name, tmp_path, groups):
    books(tmp_path / "books")
    alone = trained(tmp_path, name, "1")
    kept = SETTINGS[name][1]["pruning"]["nonzeros"]
    assert all(numbers == [kept] * WIDTH for numbers in alone[1].values())
    for size in (2, 4):
        if size <= SETTINGS[name][1]["shards"]:
            assert groups(size)(trained, tmp_path, name, str(size)) == [alone] * size
