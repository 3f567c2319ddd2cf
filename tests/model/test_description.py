"""Described weights against the dense twin, whose rows are sums of vectors."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.model.twin import Real, Twin, snapshot, stands_of
from tests.rows import dense_rows
from widenet.sparse import SparseBatch

WIDTH, KNOWN, GENRES, UNITS, EXAMPLES, RATE = 23, 19, 5, 4, 6, 0.3
BY = ["genre", "price"]
HISTORY = {"name": "history", "kind": "input", "field": "items"}
NEXT = {"name": "next", "kind": "output", "field": "items"}
TASTE = {"name": "taste", "units": UNITS, "activation": "tanh"}


def layers(tied=False, of_input=True, of_output=True, taste=(), **settings):
    """The layers of a network whose input, output or shared weights are described."""
    taste = {**TASTE, **dict(taste), **({"described_by": BY} if of_input else {})}
    share = {"weights": {"layer": "taste", "transposed": True}} if tied else {}
    by = {"described_by": BY} if of_output and not tied else {}
    return {"layers": [HISTORY, taste, {**NEXT, **share, **by, **settings}]}


NETWORKS = {
    "an output": layers(of_input=False),
    "an input": layers(of_output=False),
    "both": layers(),
    "tied": layers(tied=True),
    "tied, by cosine": layers(tied=True, cosine={"temperature": 0.5}),
    "an output by cosine": layers(of_input=False, cosine={"temperature": 0.5}),
    "single units": layers(activation="sigmoid", loss="cross_entropy"),
    "squares": layers(of_input=False, activation="linear", loss="l2"),
    "a mean gradient": {**layers(tied=True), "shared_gradient": "mean"},
    "tied, sampled": layers(tied=True, sample={"kind": "uniform", "units": 7}),
    "an output sampled": layers(of_input=False, sample={"kind": "popularity", "units": 7}),
}


def attributes():
    """Categories and a number for all items but the fourth, which has none; items beyond 21 have none."""
    random = np.random.default_rng(5)
    rows = [sorted({int(g) for g in random.integers(0, GENRES, 2)} | {GENRES}) for _ in range(WIDTH - 2)]
    rows[3] = []
    values = [[1.0 if g < GENRES else float(np.float32(random.normal())) for g in row] for row in rows]
    return SparseBatch.from_lists(rows, values)


def batch():
    random = np.random.default_rng(6)
    rows = [sorted(random.choice(KNOWN, 3, replace=False).tolist()) for _ in range(EXAMPLES)]
    return {"items": SparseBatch.from_lists(rows)}


def real_of(document, training=(), threads=1):
    """A network with lively biases and vectors of attributes, ready to step."""
    given = {"price": 1, "genre": GENRES}
    facts = SimpleNamespace(kind="sparse", width=WIDTH, min_value=1.0, max_value=1.0, described=given)
    counts = {"items": np.array([WIDTH - item if item < KNOWN else 0 for item in range(WIDTH)])}
    training = {"optimizer": {"kind": "sgd", "learning_rate": RATE}, **dict(training)}
    real = Real(document, training, {"items": facts}, counts, threads, attributes=attributes())
    generator = torch.Generator().manual_seed(3)
    for description in real.network.descriptions.values():
        vectors = description.vectors.tensor.detach()
        description.before = vectors.clone()
        vectors += torch.randn(vectors.shape, generator=generator) * 0.5
        description.spread(real.network.exchange)
    return real


VECTORS = {("taste", "history"): ("taste", "history description"), ("next", ""): ("next description", "")}
"""The vectors of attributes that belong to rows, by the names of the twin."""


def of_attributes(rows, vectors):
    """What vectors of attributes add to all rows, as the twin turns them."""
    x = torch.nn.functional.pad(dense_rows(attributes(), GENRES + 1).double(), (0, 0, 0, 2))
    return (x @ vectors).T if rows == ("next", "") else x @ vectors.T


def expected_step(real):
    """The loss, and every weight after a step of plain descent of own vectors and of those of attributes."""
    before, output = snapshot(real.network), real.network.outputs["next"]
    described = {rows: vectors for rows, vectors in VECTORS.items() if vectors in before}
    own = {rows: before[rows] - of_attributes(rows, before[vectors]) for rows, vectors in described.items()}
    leaves = {key: weight.clone().requires_grad_() for key, weight in (before | own).items()}
    weights = leaves | {
        rows: leaves[rows] + of_attributes(rows, leaves[vectors]) for rows, vectors in described.items()
    }
    known = output.known.width  # the others take no part in the loss
    first = slice(known)
    ends = {("taste", "history"): first, ("next", ""): (..., first), ("next", "bias"): first}
    weights |= {key: weights[key][end] for key, end in ends.items() if key in weights}
    stands = {"next": stands_of(output, real.random)[first]} if output.sampler is not None else {}
    twin = Twin(real.spec, {"history": known}, stands=stands)
    loss = twin.loss(weights, batch(), None, real.random)
    loss.backward()
    gradients = {key: leaf.grad for key, leaf in leaves.items()}
    for pair in described.items() if real.spec.shared_gradient == "mean" else ():
        gradients |= {key: gradients[key] / 2 for key in pair}
    if (limit := real.training.gradient_norm_limit) is not None:
        length = float(sum(gradient.square().sum() for gradient in gradients.values())) ** 0.5
        gradients = {key: gradient * min(1.0, limit / length) for key, gradient in gradients.items()}
    after = {key: leaf.detach() - RATE * gradients[key] for key, leaf in leaves.items()}
    for rows, vectors in described.items():
        after[rows] += of_attributes(rows, after[vectors])
    if known < WIDTH:
        after["next", "bias"][known:] = after["next", "bias"][:known].min()
    return loss.item(), after


@pytest.mark.parametrize("limit", [None, 0.2])
@pytest.mark.parametrize("which", NETWORKS)
def test_a_step_is_that_of_the_dense_twin(which, limit):
    real = real_of(NETWORKS[which], {} if limit is None else {"gradient_norm_limit": limit})
    loss, after = expected_step(real)
    assert real.step(batch()) == pytest.approx(loss, rel=1e-5)
    found = snapshot(real.network)
    assert found.keys() == after.keys()
    for key, expected in after.items():
        torch.testing.assert_close(found[key], expected, atol=3e-6, rtol=1e-5)


def test_rows_of_items_without_interactions_are_sums_of_their_attributes_for_ever():
    real = real_of(NETWORKS["tied"], {"optimizer": {"kind": "adam", "learning_rate": 0.05}})
    rows, vectors = ("taste", "history"), VECTORS["taste", "history"]
    start = snapshot(real.network)[vectors]
    for number in range(1, 6):
        real.step(batch(), number=number)
    after = snapshot(real.network)
    added = of_attributes(rows, after[vectors])
    assert float((after[vectors] - start).abs().min(dim=0).values.max()) > 0.01
    torch.testing.assert_close(after[rows][KNOWN : WIDTH - 2], added[KNOWN : WIDTH - 2], atol=1e-5, rtol=1e-5)
    assert not after[rows][WIDTH - 2 :].any()
    assert float((after[rows] - added)[:KNOWN].abs().min(dim=1).values.min()) > 0


@pytest.mark.parametrize("which", ["tied", "an output sampled"])
def test_biases_of_items_without_interactions_are_the_smallest_of_the_others(which):
    real = real_of(NETWORKS[which])
    before = snapshot(real.network)["next", "bias"]
    real.step(batch())
    after = snapshot(real.network)["next", "bias"]
    assert after[KNOWN:].tolist() == [float(after[:KNOWN].min())] * (WIDTH - KNOWN)
    assert not torch.equal(after[KNOWN:], before[KNOWN:])
