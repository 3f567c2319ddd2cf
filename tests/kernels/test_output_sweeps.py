"""Steps that sweep a shard in one compiled call against those that take its tiles one by one, to the bit."""

from itertools import islice

import pytest
import torch

from tests.model.twin import Real, random_batch, sparse
from widenet.kernels import native
from widenet.kernels.native import product_routine
from widenet.model import native_passes
from widenet.model.rule import StepNumbers
from widenet.model.step_random import StepRandom
from widenet.plan import tiles
from widenet.sparse import SparseBatch
from widenet.training.step import Step, train_step

pytestmark = pytest.mark.skipif(not product_routine(), reason="torch exports no sgemm here")
WIDTH = 211
FIELDS = {"items": sparse(WIDTH, 0, 1), "in": sparse(23)}
SIGMOID, SOFTMAX = {"activation": "sigmoid"}, {"activation": "softmax"}


def network(units=6, **output):
    return {
        "layers": [
            {"name": "in", "kind": "input", "field": "in"},
            {"name": "h", "units": units, "activation": "tanh"},
            {"name": "out", "kind": "output", "field": "items", **output},
        ]
    }


CASES = {
    "sigmoid": (network(**SIGMOID), {"optimizer": "rmsprop"}),
    "sigmoid, values ignored": (
        network(**SIGMOID, values="ignore"),
        {"optimizer": "sgd", "l1": 0.01, "l2": 0.02},
    ),
    "sigmoid with l2 of the bias": (network(**SIGMOID, bias_l2=0.3), {"optimizer": "rmsprop", "l2": 0.1}),
    "sigmoid without bias": (network(**SIGMOID, bias=False), {"optimizer": "adam"}),
    "sigmoid in bfloat16": (network(**SIGMOID), {"precision": "bfloat16", "optimizer": "rmsprop"}),
    "softmax in bfloat16": (network(**SOFTMAX), {"precision": "bfloat16"}),
    "softmax": (network(**SOFTMAX), {"optimizer": "momentum"}),
    "softmax, values ignored": (network(**SOFTMAX, values="ignore"), {"optimizer": {"kind": "adamw"}}),
    "softmax with l2 of the bias": (network(**SOFTMAX, bias_l2=0.3), {"optimizer": "sgd", "l1": 0.1}),
    "softmax without bias": (network(**SOFTMAX, bias=False), {"optimizer": "adagrad"}),
}
COSINE = {"cosine": {"temperature": 0.2}}
WITHOUT = {
    "a limit on rows": (network(**SIGMOID, weight_norm=0.5), {}),
    "directions": (network(**SOFTMAX, **COSINE), {}),
}
"""Trainings whose weights are not updated within a sweep."""


def tied(*others, units=6, **output):
    """A network whose outputs use the weight of a sparse input."""
    shared = {"source": "h", "weights": {"layer": "h", "transposed": True}}
    layers = [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "h", "units": units, "activation": "tanh"},
        {"name": "out", "kind": "output", "field": "items", **output, **shared},
        *({"name": "other", "kind": "output", "field": "items", **other, **shared} for other in others),
    ]
    return {"layers": layers}


DEFERRED = {
    "softmax": (tied(**SOFTMAX), {"optimizer": "adam"}),
    "softmax of directions": (tied(**SOFTMAX, **COSINE), {"optimizer": "adam", "l2": 0.1}),
    "softmax of directions, many numbers": (tied(units=40, **SOFTMAX, **COSINE), {"optimizer": "adagrad"}),
    "softmax of directions without bias": (tied(**SOFTMAX, **COSINE, bias=False), {"optimizer": "momentum"}),
    "softmax of directions in bfloat16": (tied(**SOFTMAX, **COSINE), {"precision": "bfloat16"}),
    "softmax in bfloat16": (tied(**SOFTMAX), {"precision": "bfloat16"}),
    "softmax of a frozen weight": (tied(**SOFTMAX, frozen=True), {"gradient_norm_limit": 0.1}),
    "sigmoid": (tied(**SIGMOID), {"optimizer": "rmsprop"}),
    "sigmoid of directions": (tied(**SIGMOID, **COSINE), {"optimizer": "rmsprop"}),
    "sigmoid of directions in bfloat16": (tied(**SIGMOID, **COSINE), {"precision": "bfloat16"}),
    "sigmoid, values ignored": (tied(**SIGMOID, values="ignore"), {"optimizer": "sgd"}),
    "two outputs": (tied(SIGMOID, **SOFTMAX, **COSINE), {"optimizer": "adam"}),
    "limits": (tied(**SOFTMAX, **COSINE), {"optimizer": "adam", "gradient_norm_limit": 0.1}),
    "a limit on the gradient": (network(**SOFTMAX), {"gradient_norm_limit": 0.1}),
}
"""Trainings whose weights are updated after the sweeps."""


def batches(examples, seed=1):
    """Batches without end; some examples have no target, and some targets occur twice."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        rows = [torch.randint(0, WIDTH, (int(n),), generator=generator) for n in range(examples)]
        lists = [sorted([*row.tolist(), *row.tolist()[:1]]) for row in rows]
        values = [(torch.rand(len(row), generator=generator)).tolist() for row in lists]
        yield {
            "items": SparseBatch.from_lists(lists, values),
            "in": random_batch(generator, examples, 23, 6),
        }


def trained(document, training, examples=9, num_threads=1, num_steps=5):
    """The bits after some steps, and the losses."""
    real, losses = Real(document, training, FIELDS, num_threads=num_threads), []
    for number, batch in enumerate(islice(batches(examples), num_steps), 1):
        random = StepRandom(11, 2, number)
        step = Step(
            real.network.prepare(batch, random),
            random,
            StepNumbers(number, real.rates),
            real.training.gradient_norm_limit,
        )
        losses.append(train_step(real.network, real.rule, step))
    return losses, real.bits()


@pytest.fixture(autouse=True)
def many_tiles(monkeypatch):
    """Several tiles in every shard, the last of another size."""
    monkeypatch.setattr(tiles, "LEAST_UNITS", 16)
    monkeypatch.setitem(tiles.TILE_CELLS, "cpu", 16 * 9)


@pytest.fixture
def sweeps(monkeypatch):
    """Counts the sweeps, by name."""
    made = []

    def counted(name, own):
        return lambda *arguments, **options: made.append(name) or own(*arguments, **options)

    for name in ("add_softmax_sums", "update"):
        monkeypatch.setattr(native_passes, name, counted(name, getattr(native_passes, name)))
    return made


@pytest.fixture
def deferred(monkeypatch):
    """Counts the calls for weights that are updated later, by name."""
    made = []

    def counted(name, own):
        return lambda *arguments: made.append(name) or own(*arguments)

    for name in ("make_slopes", "fill_gradients"):
        monkeypatch.setattr(native_passes, name, counted(name, getattr(native_passes, name)))
    return made


@pytest.fixture
def by_tiles(monkeypatch):
    """Trains as where torch exports no routine."""

    def train(*arguments, **options):
        with monkeypatch.context() as patch:
            patch.setattr(native_passes, "product_routine", lambda: 0)
            return trained(*arguments, **options)

    return train


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("kept", [0, 2**20])
@pytest.mark.parametrize("case", CASES)
def test_a_sweep_has_the_bits_of_its_tiles(case, kept, num_threads, sweeps, by_tiles, monkeypatch):
    monkeypatch.setitem(tiles.KEPT_BYTES, "cpu", kept)
    expected = by_tiles(*CASES[case])
    assert not sweeps
    assert trained(*CASES[case], num_threads=num_threads) == expected
    names = {"add_softmax_sums", "update"} if "softmax" in case else {"update"}
    assert (set(sweeps), len(sweeps)) == (names, len(names) * 3 * 5)


@pytest.mark.parametrize("num_threads", [1, 2])
@pytest.mark.parametrize("kept", [0, 2**20])
@pytest.mark.parametrize("case", DEFERRED)
def test_weights_that_are_updated_later_have_the_bits_of_their_tiles(
    case, kept, num_threads, deferred, by_tiles, monkeypatch
):
    monkeypatch.setitem(tiles.KEPT_BYTES, "cpu", kept)
    expected = by_tiles(*DEFERRED[case])
    assert not deferred
    assert trained(*DEFERRED[case], num_threads=num_threads) == expected
    outputs = len(DEFERRED[case][0]["layers"]) - 2
    assert deferred.count("make_slopes") == outputs * 3 * 5
    at_once = kept and "many numbers" not in case
    assert ("fill_gradients" in deferred) == ("frozen" not in case and not at_once)


@pytest.mark.parametrize("kept", [0, 2**20])
@pytest.mark.parametrize("case", WITHOUT)
def test_weights_that_a_sweep_cannot_update_have_the_same_bits(case, kept, sweeps, by_tiles, monkeypatch):
    monkeypatch.setitem(tiles.KEPT_BYTES, "cpu", kept)
    expected = by_tiles(*WITHOUT[case])
    assert trained(*WITHOUT[case]) == expected
    assert "update" not in sweeps


def test_operands_are_rounded_as_torch_rounds():
    edges = [
        0.0,
        -0.0,
        1.0,
        1 + 2**-8,
        1 + 3 * 2**-8,
        3.4e38,
        -3.4e38,
        1e-40,
        torch.inf,
        -torch.inf,
        torch.nan,
    ]
    numbers_RN = torch.cat([torch.tensor(edges), torch.randn(1000) * 100])[None]
    rounded_RN = torch.empty_like(numbers_RN)
    native.call("to_bfloat16", numbers_RN, rounded_RN, numbers_RN.numel())
    expected_RN = numbers_RN.bfloat16().float()
    is_number = ~expected_RN.isnan()
    assert torch.equal(rounded_RN.isnan(), ~is_number)  # which NaN depends on torch's instruction set
    assert torch.equal(*(each[is_number].view(torch.int32) for each in (rounded_RN, expected_RN)))
