"""The k best units: those of a dense float64 network whose scores are all computed and sorted."""

import math

import numpy as np
import pytest
import torch

from tests.rows import all_rows, dense_rows
from widenet.model.build import build
from widenet.model.storage import Scratch, put_rows
from widenet.parallel.exchange import Exchange, one_thread_an_operation
from widenet.plan.binding import bind
from widenet.plan.tiles import FEWEST_EXAMPLES, SEARCHED_CELLS, as_slice
from widenet.predict.top_k import Rules, layer_values, top_k
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

WIDTH = 157
ERF = np.vectorize(math.erf)
ACTIVATIONS = {
    "linear": lambda z: z,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
    "leaky_relu": lambda z: np.where(z > 0, z, 0.01 * z),
    "elu": lambda z: np.where(z > 0, z, np.exp(z) - 1),
    "selu": lambda z: 1.0507009873554805 * np.where(z > 0, z, 1.6732632423543772 * (np.exp(z) - 1)),
    "softplus": lambda z: np.log1p(np.exp(z)),
    "softsign": lambda z: z / (1 + np.abs(z)),
    "gelu": lambda z: z * 0.5 * (1 + ERF(z / 2**0.5)),
    "silu": lambda z: z / (1 + np.exp(-z)),
    "softmax": lambda z: np.exp(z) / np.exp(z).sum(axis=1, keepdims=True),
    "relu_max": lambda z: np.maximum(z, 0) / np.maximum(z, 0).sum(axis=1, keepdims=True),
    "linear_max": lambda z: z / np.abs(z).sum(axis=1, keepdims=True),
}

BATCH = SparseBatch.from_lists([[0, 5, 19], [3], [], [7, 8, 9, 10], [19]])
EXCLUDED = [[0, 5, 156], [], list(range(0, 157, 2)), list(range(156)), list(range(157))]


class Facts:
    kind, min_value, max_value = "sparse", 1.0, 1.0

    def __init__(self, width):
        self.width = width


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread_an_operation():
        yield


@pytest.fixture
def tiny_tiles(monkeypatch):
    monkeypatch.setitem(SEARCHED_CELLS, "cpu", 1)


@pytest.fixture(params=["one tile", "tiny tiles"])
def tiles(request):
    """Tests hold for a search of all units at once and for one by tiles."""
    if request.param == "tiny tiles":
        request.getfixturevalue("tiny_tiles")


def network(activation, shards=2, width=WIDTH, threads=2, elsewhere=None, **output):
    layers = [
        {"name": "in", "kind": "input", "field": "history"},
        {"name": "mid", "units": 6, "activation": "tanh"},
        {"name": "out", "kind": "output", "field": "items", "activation": activation, "loss": "l2", **output},
    ]
    facts = {"history": Facts(20), "items": Facts(width)}
    built = build(
        bind(NetworkSpec.of({"layers": layers}), TrainingSpec.of({"shards": shards}), facts),
        Exchange(shards, threads),
        counts={},
        elsewhere=elsewhere,
    )
    generator = torch.Generator().manual_seed(3)
    for wide in built.wide.values():
        rows = torch.randn(
            wide.shards.width, *next(iter(wide.parts.values())).weight.shape[1:], generator=generator
        )
        for shard, part in wide.parts.items():
            own = rows[as_slice(wide.shards.units(shard))]
            put_rows(part.weight, torch.arange(len(own)), own)
    return built


def scores_of(built, activation):
    """Every score float64 [E, width], from the definition."""

    def weight(name):
        return all_rows(built.wide[name]).double().numpy()

    hidden = np.tanh(
        dense_rows(BATCH, 20).double().numpy() @ weight("mid/in")
        + built.trunk["mid bias"].tensor.double().numpy()
    )
    vectors, spec = weight("out"), built.outputs["out"].spec
    if spec.cosine is not None:
        temperature = spec.cosine.prediction_temperature or spec.cosine.temperature
        hidden = hidden / np.linalg.norm(hidden, axis=1, keepdims=True).clip(1e-9) / temperature
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return ACTIVATIONS[activation](hidden @ vectors.T + weight("out bias"))


def ranked(scores, k, excluded=None, banned=(), weights=None):
    """Scores and units of the k best, by sorting everything; of equal scores the lower unit first."""
    found = []
    for row, own in enumerate(scores if weights is None else scores * weights):
        barred = {*banned, *(excluded[row] if excluded else ())}
        best = sorted((-score, unit) for unit, score in enumerate(own) if unit not in barred)[:k]
        found.append(
            [(-score, unit) for score, unit in best]
            + [(-math.inf, -1)] * (min(k, scores.shape[1]) - len(best))
        )
    return found


def assert_same(found, expected):
    scores, units = found[0].tolist(), found[1].tolist()
    assert units == [[unit for _, unit in row] for row in expected]
    assert scores == [pytest.approx([score for score, _ in row], rel=2e-5, abs=1e-6) for row in expected]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("filtered", ["nothing", "excluded", "banned", "weights", "all"])
@pytest.mark.usefixtures("tiles")
def test_they_are_the_best_of_a_dense_network_under_every_activation_and_filter(activation, filtered):
    built = network(activation)
    excluded = EXCLUDED if filtered in ("excluded", "all") else None
    banned = [2, 3, 77, 155] if filtered in ("banned", "all") else []
    weights = np.linspace(0.5, 2, WIDTH) if filtered in ("weights", "all") else None
    rules = Rules(
        torch.isin(torch.arange(WIDTH), torch.tensor(banned)) if banned else None,
        None if weights is None else torch.tensor(weights, dtype=torch.float32),
    )
    found = top_k(
        built, {"history": BATCH}, "out", 7, SparseBatch.from_lists(excluded) if excluded else None, rules
    )
    assert found[0].dtype == torch.float32
    assert_same(found, ranked(scores_of(built, activation), 7, excluded, banned, weights))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.usefixtures("tiny_tiles")
def test_factors_multiply_the_scores_of_units_example_by_example(activation):
    built = network(activation, shards=3)
    units = [[0, 5, 60, 156], [], list(range(0, 157, 2)), [3], list(range(157))]
    factors = [[0.25 + 0.5 * (unit % 3) for unit in row] for row in units]
    scores = scores_of(built, activation)
    for row, (own, by) in enumerate(zip(units, factors, strict=True)):
        scores[row, own] *= by
    for excluded in (None, EXCLUDED):
        batch = SparseBatch.from_lists(excluded) if excluded else None
        found = top_k(
            built, {"history": BATCH}, "out", 9, batch, factors=SparseBatch.from_lists(units, factors)
        )
        assert_same(found, ranked(scores, 9, excluded))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.usefixtures("tiles")
def test_the_values_of_a_layer_come_in_order_of_units_and_no_more_than_a_tile_at_once(activation):
    built = network(activation, shards=3)
    pieces = list(layer_values(built, {"history": BATCH}, "out"))
    assert max(piece.shape[1] for piece in pieces) <= max(3 * 64, SEARCHED_CELLS["cpu"] // FEWEST_EXAMPLES)
    np.testing.assert_allclose(
        torch.cat(pieces, dim=1).numpy(), scores_of(built, activation), rtol=2e-5, atol=1e-6
    )
    (hidden,) = layer_values(built, {"history": BATCH}, "mid")
    assert hidden.shape == (5, 6)


def test_they_are_right_where_empty_shards_of_a_file_are_searched_by_threads_of_their_own(tmp_path):
    expected = ranked(scores_of(network("linear", shards=8, width=5), "linear"), 9)
    for _ in range(20):
        built = network("linear", 8, 5, threads=8, elsewhere=Scratch(tmp_path))
        assert_same(top_k(built, {"history": BATCH}, "out", 9), expected)


@pytest.mark.parametrize("prediction_temperature", [None, 0.3])
def test_cosine_scores_are_those_of_directions(prediction_temperature):
    built = network("linear", cosine={"temperature": 0.2, "prediction_temperature": prediction_temperature})
    found = top_k(built, {"history": BATCH}, "out", 9)
    assert_same(found, ranked(scores_of(built, "linear"), 9))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.usefixtures("tiny_tiles")
def test_of_equal_scores_the_lower_unit_comes_first(activation, weighted):
    built = network(activation, shards=3)
    for shard, part in built.wide["out"].parts.items():
        part.weight.zero_()
        units = torch.tensor(built.wide["out"].shards.units(shard))
        built.wide["out bias"].parts[shard].weight.copy_(1.0 + units % 2)
    rules = Rules(weight_L=torch.ones(WIDTH)) if weighted else None
    units = top_k(built, {"history": BATCH}, "out", 90, SparseBatch.from_lists([[1, 5]] * 5), rules)[1]
    assert (
        units.tolist()
        == [[unit for unit in range(1, WIDTH, 2) if unit not in (1, 5)] + list(range(0, 28, 2))] * 5
    )
