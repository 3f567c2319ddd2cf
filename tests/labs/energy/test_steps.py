"""Operations of a step against those that widenet's plan counts."""

import pytest

from labs.communication.arithmetic import autoencoder
from labs.energy.steps import Network, Way, step
from widenet.plan.job import Job
from widenet.plan.work import work

NETWORK = Network(width=100_000, hidden=128, examples=256, entries=100)


def test_products_are_those_of_the_plan():
    counted = work(Job.of(autoencoder(100_000, 128, 256), {"items": 100.0})).operations
    updates = 2 * 2 * (NETWORK.width + 256 * 100) * 128
    products = 2 * step(NETWORK, Way(sparse=True, tiled=True)).products
    assert products - updates == pytest.approx(counted, rel=0.02)


def test_sparseness_tiles_and_short_numbers_each_save():
    ways = [Way(False, False), Way(True, False), Way(True, True)]
    costs = [sum(step(NETWORK, way).joules()) for way in ways]
    costs.append(sum(step(NETWORK, Way(True, True, number_bytes=2)).joules("float16")))
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] < costs[0] / 2


def test_tiles_move_the_same_bytes_nearer():
    apart, tiled = (step(NETWORK, Way(True, is_tiled)) for is_tiled in (False, True))
    assert apart.products == tiled.products
    assert tiled.memory_bytes + tiled.cache_bytes <= apart.memory_bytes
