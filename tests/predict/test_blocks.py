"""What a row gives has the same bits whatever came with it, and wherever it stood."""

import numpy as np
import pytest
import torch

from widenet.model.build import build
from widenet.parallel.exchange import Exchange, one_thread_an_operation
from widenet.plan.binding import bind
from widenet.predict.top_k import Only, top_k
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

WIDTH, NUM, PLACES = 2311, 150, 49


class Facts:
    min_value, max_value = 0.0, 1.0

    def __init__(self, width, kind="sparse"):
        self.width, self.kind = width, kind


def out(**more):
    return {"name": "out", "kind": "output", "field": "items", **more}


ITEMS = {"name": "in", "kind": "input", "field": "items"}
PICTURE = {"name": "picture", "kind": "input", "field": "picture", "shape": [1, 7, 7]}
LAYERS = {
    "deep": [
        ITEMS,
        {"name": "low", "units": 37, "activation": "sigmoid"},
        {"name": "mid", "units": 19},
        out(),
    ],
    "units": [
        {**ITEMS, "scale": "unit"},
        {"name": "mid", "units": 13, "activation": "gelu"},
        out(activation="sigmoid", loss="cross_entropy"),
    ],
    "cosine": [
        ITEMS,
        {"name": "side", "kind": "input", "field": "side", "scale": "unit"},
        {"name": "mid", "units": 21, "source": ["in", "side"], "batch_normalization": {}},
        out(cosine={"temperature": 0.1}, activation="linear", loss="l2"),
    ],
    "not filled up": [
        ITEMS,
        {"name": "low", "units": 64, "activation": "sigmoid"},
        {"name": "mid", "units": 128, "activation": "gelu", "batch_normalization": {}},
        {"name": "top", "units": 64, "activation": "tanh"},
        out(cosine={"temperature": 0.1}),
    ],
    "hardly filled up": [ITEMS, {"name": "low", "units": 96, "activation": "softplus"}, out()],
    "split": [ITEMS, {"name": "low", "units": 70}, {"name": "mid", "units": 66, "split": True}, out()],
    "features": [ITEMS, out(activation="sigmoid", loss="cross_entropy")],
    "largest": [ITEMS, {"name": "mid", "units": 7}, out(activation="relu_max", loss="l2")],
    "picture": [
        PICTURE,
        {"name": "edges", "kind": "convolution", "filters": 5, "kernel": 3, "activation": "silu"},
        {"name": "least", "kind": "pooling", "function": "average", "kernel": 2},
        {"name": "mid", "units": 11},
        out(),
    ],
    "windows, not filled up": [
        {"name": "pixels", "kind": "input", "field": "pixels", "shape": [1, 8, 8]},
        {"name": "edges", "kind": "convolution", "filters": 8, "kernel": 3, "padding": "same"},
        {"name": "mean", "kind": "pooling", "function": "average", "kernel": 2},
        {"name": "wide", "kind": "convolution", "filters": 16, "kernel": 3, "activation": "silu"},
        {"name": "most", "kind": "pooling", "function": "max", "kernel": 2, "stride": 1},
        {"name": "few", "kind": "convolution", "filters": 64, "kernel": 1, "activation": "tanh"},
        out(),
    ],
    "gru": [ITEMS, {"name": "mid", "kind": "recurrent", "cell": "gru", "units": 9}, out(predict="next")],
    "lstm": [ITEMS, {"name": "mid", "kind": "recurrent", "cell": "lstm", "units": 9}, out(predict="next")],
    "attention": [
        ITEMS,
        {"name": "low", "units": 12, "activation": "linear"},
        {"name": "mid", "kind": "attention", "heads": 3, "feed_forward": 19, "activation": "gelu"},
        {"name": "top", "kind": "attention", "positions": "absolute", "normalize_output": True},
        out(predict="next"),
    ],
}
ALONG = ("gru", "lstm", "attention")


def network(name, shards=3, width=WIDTH):
    kind = "sequence" if name in ALONG else "sparse"
    facts = {
        "items": Facts(width, kind),
        **{name: Facts(own.shape[1], "dense") for name, own in DENSE.items()},
    }
    layers = LAYERS[name] if isinstance(name, str) else name
    layout = bind(NetworkSpec.of({"layers": layers}), TrainingSpec.of({"shards": shards}), facts)
    built = build(layout, Exchange(shards, 2), counts={})
    generator = torch.Generator().manual_seed(1)
    for wide in built.wide.values():
        for part in wide.parts.values():
            part.weight.copy_(torch.randn(part.weight.shape, generator=generator))
    return built


def examples():
    random = np.random.default_rng(5)
    lengths = random.integers(0, 30, NUM)
    rows = [random.choice(WIDTH, length, replace=False).tolist() for length in lengths]
    values = [random.random(length).tolist() for length in lengths]
    dense = {
        "side": torch.from_numpy(random.random((NUM, 6), np.float32)),
        "picture": torch.from_numpy(random.random((NUM, PLACES), np.float32)),
        "pixels": torch.from_numpy(random.random((NUM, 64), np.float32)),
    }
    return rows, values, dense


ROWS, VALUES, DENSE = examples()


def batch(name, chosen):
    with_values = name == "units"
    values = [VALUES[row] for row in chosen] if with_values else None
    return {
        "items": SparseBatch.from_lists([ROWS[row] for row in chosen], values),
        **{field: numbers[torch.as_tensor(chosen)] for field, numbers in DENSE.items()},
    }


def answers(built, name, chosen, k, **more):
    scores, units = top_k(built, batch(name, chosen), "out", k, **more)
    return [(own.numpy().tobytes(), each.tolist()) for own, each in zip(scores, units, strict=True)]


@pytest.mark.parametrize("name", LAYERS)
def test_every_batching_of_the_rows_gives_each_row_the_same_bits(name):
    built, random = network(name), np.random.default_rng(2)
    with one_thread_an_operation():
        together = answers(built, name, range(NUM), 20)
        assert len({scores for scores, _ in together}) > NUM / 2
        assert answers(built, name, [7], 20) == [together[7]]
        rows = random.permutation(NUM).tolist()
        while rows:
            size = int(random.integers(1, 100))
            chosen, rows = rows[:size], rows[size:]
            assert answers(built, name, chosen, 20) == [together[row] for row in chosen]


@pytest.mark.parametrize("units", [1, 2, 3, 5, 8, 11, 17])
@pytest.mark.parametrize("inner", [8, 33])
@pytest.mark.parametrize("split", [True, False])
def test_narrow_layers_and_outputs_give_a_row_the_same_bits_at_every_place(units, inner, split):
    low, mid = {"name": "low", "units": inner}, {"name": "mid", "units": 2 * units, "split": split}
    for layers, width in (([ITEMS, low, mid, out()], WIDTH), ([ITEMS, low, out()], 2 * units)):
        built = network(layers, 2 if split else 1, width)
        random = np.random.default_rng(units)
        row = {
            "items": SparseBatch.from_lists(
                [random.choice(width, min(width, 9), replace=False).tolist()] * 64
            )
        }
        with one_thread_an_operation():
            scores, found = top_k(built, row, "out", 5)
        assert (scores == scores[0]).all()
        assert (found == found[0]).all()


@pytest.mark.parametrize("name", ["deep", "units", "largest"])
def test_a_choice_from_some_units_gives_these_the_bits_that_they_have_among_all(name):
    built, wanted = network(name), [[5, 77, 2310], [], [0, 1, 2, 3]]
    only = Only(SparseBatch.from_lists(wanted), torch.tensor([True, False, True]))
    with one_thread_an_operation():
        whole_EL, order_EL = top_k(built, batch(name, range(3)), "out", WIDTH)
        scores_EK, units_EK = top_k(built, batch(name, range(3)), "out", 4, only=only)
    assert torch.equal(scores_EK[1], whole_EL[1, :4])
    assert torch.equal(units_EK[1], order_EL[1, :4])
    for row in (0, 2):
        kept = torch.isin(order_EL[row], torch.tensor(wanted[row]))
        found = units_EK[row] >= 0
        assert torch.equal(units_EK[row][found], order_EL[row][kept])
        assert torch.equal(scores_EK[row][found], whole_EL[row][kept])
        assert int(found.sum()) == len(wanted[row])
