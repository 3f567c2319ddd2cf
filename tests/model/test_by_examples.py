"""Layers divided by examples: a step is that of a dense twin in float64, and neither threads nor processes
move a bit.
"""

import pytest
import torch

from tests.model.twin import Real, assert_step_matches_twin, dense_field, random_batch, sparse
from tests.parallel.matrix import write_data
from tests.parallel.split import DIVIDED, SIZES, outcomes_alone, outcomes_here
from widenet.model.optimizers import StepNumbers
from widenet.training.step import train_step

LAYERS, _ = DIVIDED
FACTS = {"items": sparse(23), "picture": dense_field(3 * 12 * 12)}
CHANGES = [
    {"optimizer": "sgd"},
    {"optimizer": "momentum", "gradient_norm_limit": 0.05},
    {"optimizer": "adam", "precision": "bfloat16"},
    {"optimizer": "adagrad", "batch_size": 6},
]


def batch(num_examples):
    generator = torch.Generator().manual_seed(3)
    return {
        "items": random_batch(generator, num_examples, 23, 6),
        "picture": torch.rand(num_examples, 3 * 12 * 12, generator=generator),
    }


@pytest.mark.parametrize(
    ("num_examples", "training"),
    [
        (9, {}),
        (2, {}),
        (9, {"shards": 1}),
        (9, {"l2": 0.1, "gradient_norm_limit": 0.05}),
        (5, {"shards": 16}),
    ],
)
def test_a_step_is_that_of_the_dense_twin(num_examples, training):
    real, _ = assert_step_matches_twin({"layers": LAYERS}, FACTS, batch(num_examples), training)
    assert real.network.layout.by_examples == ("edges", "even", "best", "parts")


def test_the_gradients_that_a_run_records_are_those_of_the_dense_twin():
    _, gradients = assert_step_matches_twin({"layers": LAYERS}, FACTS, batch(9), {})
    real, observed = Real({"layers": LAYERS}, {}, FACTS), {}
    prepared = real.network.prepare(batch(9), real.place)
    numbers = StepNumbers(1, real.rates)
    train_step(real.network, real.rule, prepared, numbers, lambda _, update: observed.update(update.norms()))
    for name in ("edges/picture", "edges bias", "parts/best", "parts bias"):
        layer, _, end = name.replace(" ", "/").partition("/")
        expected = gradients[layer, end]
        assert observed[f"gradients/{name}"] == pytest.approx(float(expected.norm()), rel=1e-5)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def alone(data):
    return outcomes_alone(DIVIDED, data / "few pictures", CHANGES)


@pytest.mark.parametrize(("size", "some"), SIZES)
def test_every_number_of_processes_and_of_threads_gives_the_bits_of_one(
    size, some, data, alone, groups, tmp_path
):
    """Of one with its wide weights in memory; theirs lie on a disk."""
    assert len({fingerprint for _, fingerprint, *_ in alone}) == len(CHANGES)
    for found in groups(size)(outcomes_here, DIVIDED, data / "few pictures", CHANGES[some], tmp_path):
        pairs = zip(CHANGES[some], alone[some], found, strict=True)
        assert [changes for changes, one, many in pairs if one != many] == []
