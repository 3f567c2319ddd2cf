"""Shards ranked natively: the bits of a ranking tile by tile, for every rule that they know."""

from itertools import product

import pytest
import torch

from tests.predict.test_blocks import ITEMS, NUM, WIDTH, batch, network, out
from widenet.parallel.exchange import one_thread_an_operation
from widenet.predict import top_k
from widenet.predict.top_k import Only, Rules, Tiles
from widenet.runs.quantizing import put_in_8_bits
from widenet.sparse import SparseBatch

MID = {"name": "mid", "units": 21, "activation": "tanh"}
NETWORKS = {
    "softmax": [ITEMS, MID, out()],
    "no bias": [ITEMS, MID, out(bias=False)],
    "cosine": [ITEMS, MID, out(cosine={"temperature": 0.1}, activation="linear", loss="l2")],
    "cosine softmax": [ITEMS, MID, out(cosine={"temperature": 0.1})],
    "sigmoid": [ITEMS, MID, out(activation="sigmoid", loss="cross_entropy")],
}
EXCLUDED = SparseBatch.from_lists([[(700 * unit + e) % WIDTH for unit in range(e)] for e in range(NUM)])
RULES = {
    "none": {},
    "excluded": {"excluded": EXCLUDED},
    "banned": {"rules": Rules(torch.arange(WIDTH) % 3 == 0)},
    "both": {"excluded": EXCLUDED, "rules": Rules(torch.arange(WIDTH) % 3 == 0)},
    "no scores": {"scores": False},
}
CASES = sorted({*product(["softmax"], RULES), *product(NETWORKS, ["both"])})
"""Rules and networks do not meet: a rule hides units, whatever gave their logits."""


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread_an_operation():
        yield


def check_both_ways(monkeypatch, built, k, **rules):
    """Scores and units have the same bits by sweeps and tile by tile."""
    fields, ways, logits = batch("deep", range(NUM)), [], Tiles.logits
    monkeypatch.setattr(Tiles, "logits", lambda *arguments: ways.append(1) or logits(*arguments))
    swept = top_k.top_k(built, fields, "out", k, **rules)
    assert not ways
    nobody = Only(SparseBatch.from_lists([[]] * NUM), torch.zeros(NUM, dtype=torch.bool))
    by_tiles = top_k.top_k(built, fields, "out", k, **rules, only=nobody)
    assert ways
    assert all(map(torch.equal, swept, by_tiles))


@pytest.mark.parametrize(("layers", "rules"), CASES)
@pytest.mark.parametrize("shards", [1, 3])
def test_they_have_the_bits_of_a_ranking_tile_by_tile(monkeypatch, layers, rules, shards):
    built = network(NETWORKS[layers], shards)
    check_both_ways(monkeypatch, built, 9, **RULES[rules])


@pytest.mark.parametrize(("layers", "rules"), CASES)
def test_in_8_bits_too_they_have_the_bits_of_a_ranking_tile_by_tile(monkeypatch, layers, rules):
    built = network(NETWORKS[layers], shards=3)
    put_in_8_bits(built)
    check_both_ways(monkeypatch, built, 9, **RULES[rules])


@pytest.mark.parametrize("width", [5, 50, 3 * 2048 + 5])
def test_narrow_tiles_and_empty_shards_are_filled_up(monkeypatch, width):
    built = network(NETWORKS["softmax"], 3 if width > 50 else 8, width)
    monkeypatch.setattr("tests.predict.test_swept_shards.batch", lambda *_: {"items": EXCLUDED_OF[width]})
    check_both_ways(monkeypatch, built, 4)


EXCLUDED_OF = {
    width: SparseBatch.from_lists([[e % width] for e in range(NUM)]) for width in (5, 50, 3 * 2048 + 5)
}
