"""Lists under limits: those of a search through all ranked units."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from widenet.model.build import build
from widenet.parallel.exchange import Exchange, fixed_arithmetic
from widenet.plan.binding import bind
from widenet.predict import top_k as module
from widenet.predict.top_k import Limit, Rules, top_k
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

WIDTH, NUM = 421, 23
RANDOM = np.random.default_rng(7)
BATCH = SparseBatch.from_lists(
    [sorted(RANDOM.choice(WIDTH, size, replace=False).tolist()) for size in RANDOM.integers(0, 30, NUM)]
)


class Facts:
    kind, min_value, max_value, width = "sparse", 1.0, 1.0, WIDTH


LAYERS = [
    {"name": "in", "kind": "input", "field": "items"},
    {"name": "mid", "units": 7, "activation": "tanh"},
    {"name": "out", "kind": "output", "field": "items"},
]


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def network(request):
    return made_of(LAYERS, request.param)


def made_of(layers, shards):
    layout = bind(NetworkSpec.of({"layers": layers}), TrainingSpec.of({"shards": shards}), {"items": Facts})
    made = build(layout, Exchange(shards, 2), counts={})
    generator = torch.Generator().manual_seed(3)
    for wide in made.wide.values():
        for part in wide.parts.values():
            part.weight.copy_(torch.randn(part.weight.shape, generator=generator))
    return made


@pytest.fixture(autouse=True)
def few_threads():
    with fixed_arithmetic():
        yield


def limit(categories, most):
    """A limit of categories, int64 [WIDTH] or [WIDTH, M]; -1 is none."""
    last = int(categories.max(initial=-1)) + 1
    filled = np.where(categories < 0, last, categories).reshape(WIDTH, -1)
    return Limit(filled, last + 1, most)


def random_limits(random):
    """One or two limits: few large categories, many small ones, and items without any."""
    return [
        (random.integers(-1, random.choice([1, 2, 5, 40]), WIDTH), int(random.integers(1, 5)))
        for _ in range(random.integers(1, 3))
    ]


def random_lists(random):
    """A limit of categories of which an item has up to three."""
    drawn = np.sort(random.integers(-1, random.choice([4, 40]), (WIDTH, 3)), axis=1)
    drawn[:, 1:][drawn[:, 1:] == drawn[:, :-1]] = -1
    return [(drawn, int(random.integers(1, 5)))]


def as_lists(limits):
    """Limits whose categories are lists of plain numbers, one a unit, which Python reads sooner."""
    return [(categories.reshape(WIDTH, -1).tolist(), most) for categories, most in limits]


def fits(unit, chosen, limits):
    return all(
        category < 0 or sum(category in categories[other] for other in chosen) < most
        for categories, most in limits
        for category in categories[unit]
    )


def greedy(ranked, k, limits):
    limits, chosen = as_lists(limits), []
    for unit in ranked:
        if unit >= 0 and len(chosen) < k and fits(unit, chosen, limits):
            chosen.append(unit)
    return chosen


def shown(found):
    scores, units = found
    assert ((units < 0) == (scores == -torch.inf)).all()
    return [[unit for unit in row if unit >= 0] for row in units.tolist()]


@pytest.mark.parametrize("seed", range(8))
def test_limits_give_the_list_of_a_search_through_all_units(network, seed):
    random = np.random.default_rng(seed)
    weights = torch.from_numpy(random.random(WIDTH).astype(np.float32)) if seed % 2 else None
    allowed = Rules(torch.from_numpy(random.random(WIDTH) < 0.3), weights)
    limits = random_lists(random) if seed > 4 else random_limits(random)
    fields, k = {"items": BATCH}, int(random.integers(1, 60))
    scores, ranked = top_k(network, fields, "out", WIDTH, BATCH, allowed)
    rules = replace(allowed, limits=[limit(*each) for each in limits])
    found = top_k(network, fields, "out", k, BATCH, rules)
    assert shown(found) == [greedy(row, k, limits) for row in ranked.tolist()]
    for row, units, own in zip(ranked.tolist(), found[1].tolist(), range(NUM), strict=True):
        score_of = dict(zip(row, scores[own].tolist(), strict=True))
        assert [score_of[unit] for unit in units if unit >= 0] == [
            score for score in found[0][own].tolist() if score > -np.inf
        ]


def test_lists_do_not_depend_on_the_batch_or_on_how_many_are_sought_together(network, monkeypatch):
    rules = Rules(limits=[limit(*each) for each in random_limits(np.random.default_rng(1))])
    together = top_k(network, {"items": BATCH}, "out", 12, BATCH, rules=rules)
    monkeypatch.setattr(module, "_COUNTS", 200)
    assert all(map(torch.equal, top_k(network, {"items": BATCH}, "out", 12, BATCH, rules=rules), together))
    monkeypatch.undo()
    for row in (0, 11):
        alone = BATCH.take(torch.tensor([row]))
        found = top_k(network, {"items": alone}, "out", 12, alone, rules=rules)
        assert torch.equal(found[1][0], together[1][row])
        assert torch.equal(found[0][0], together[0][row])
