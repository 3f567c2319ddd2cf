"""Histograms: NumPy's counts and exact norms, of weights and activations, and of a twin's gradients."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.model.twin import Real, Twin, dense_field, random_batch, snapshot, sparse
from tests.rows import all_rows
from tests.trainings import SETTINGS, STEPS, UNTIED, books, document
from widenet.data.dataset import Dataset
from widenet.model.rule import StepNumbers
from widenet.runs import train
from widenet.training.histogram_log import Histogram
from widenet.training.histograms import of_activations, of_gradients, of_weights
from widenet.training.state import Brake
from widenet.training.step import Step, train_step

WIDTH = 29
NETWORK = {
    "shared_gradient": "mean",
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "wish", "kind": "input", "field": "wishes"},
        {"name": "age", "kind": "input", "field": "age"},
        {"name": "h", "units": 6, "source": "in", "activation": "tanh"},
        {"name": "g", "units": 6, "source": "wish", "activation": "relu", "weights": {"layer": "h"}},
        {"name": "mid", "units": 7, "source": ["h", "g", "age"], "activation": "gelu", "split": True},
        {"name": "out", "kind": "output", "field": "items", "source": "mid"},
        {"name": "seen", "kind": "output", "field": "wishes", "source": ["h", "mid"]},
    ],
}
FIELDS = {"items": sparse(WIDTH), "wishes": sparse(WIDTH), "age": dense_field(3)}


def histogram(numbers):
    """The histogram by NumPy's exponents and exact arithmetic, its norm rounded once."""
    numbers = np.asarray(numbers, np.float32).ravel()
    counted = numbers[np.abs(numbers) >= 2.0**-126]
    powers = np.frexp(counted)[1] - 1
    lowest, stop = (int(powers.min()), int(powers.max()) + 1) if len(powers) else (-126, -126)
    sides = [
        [int(((powers == power) & (sign * counted > 0)).sum()) for power in range(lowest, stop)]
        for sign in (-1, 1)
    ]
    total = sum(Fraction(float(number)) ** 2 for number in numbers)
    return Histogram(math.sqrt(total), len(numbers), len(numbers) - len(counted), lowest, *sides)


def assert_equal(found, expected):
    """All counts are equal, and the norms but for what the exact sum truncates."""
    assert {**vars(found), "norm": 0.0} == {**vars(expected), "norm": 0.0}
    assert found.norm == pytest.approx(expected.norm, rel=1e-10, abs=0)


@pytest.fixture
def real():
    return Real(NETWORK, {}, FIELDS)


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(3)
    ages = torch.randn(9, 3, generator=generator)
    return {name: random_batch(generator, 9, WIDTH, 7) for name in ("items", "wishes")} | {"age": ages}


def of_numbers(real, numbers):
    return of_activations(real.network, {"h": numbers, "in": numbers})["h"]


@pytest.mark.parametrize(
    "numbers",
    [
        [],
        [0.0, -0.0, 1e-40, -1e-45],
        [1.0, -1.0, 2.0, np.nextafter(np.float32(2), np.float32(0)), -0.5, 2.0**-126, -(2.0**-126)],
        [3.4028235e38, -3.4028235e38, 1e-20],
    ],
    ids=["none", "zeros", "edges", "large"],
)
def test_awkward_numbers_are_counted_as_numpy_does(numbers, real):
    assert_equal(of_numbers(real, torch.tensor(numbers)), histogram(numbers))


def test_many_numbers_have_an_exact_norm_in_every_order(real):
    generator = torch.Generator().manual_seed(1)
    numbers = torch.randn(50_000, generator=generator) * 10 ** torch.randn(50_000, generator=generator)
    found = of_numbers(real, numbers)
    assert_equal(found, histogram(numbers))
    assert of_numbers(real, numbers[torch.randperm(50_000, generator=generator)].view(50, -1)) == found


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_that_is_not_finite_is_counted_and_has_no_norm(number, real):
    found = of_numbers(real, torch.tensor([1.0, number]))
    assert found.norm is None
    assert sum((*found.negative, *found.positive)) == 2
    assert (found.negative[-1], found.positive[-1]) in [(1, 0), (0, 1)]
    assert len(found.positive) == 129


def test_trained_weights_of_all_kinds_are_counted_once():
    normalized = {"name": "last", "units": 5, "source": "mid", "batch_normalization": True}
    *others, out, seen = NETWORK["layers"]
    layers = [*others, normalized, {**out, "source": "last"}, seen]
    network = Real({**NETWORK, "layers": layers}, {}, FIELDS).network
    found = of_weights(network)
    wide = {name: all_rows(weight) for name, weight in network.wide.items()}
    trunk = {name: weight.tensor.detach() for name, weight in network.trunk.items() if weight.trained}
    assert found.keys() == {**wide, **trunk}.keys()
    assert {"h/in", "mid/h", "out", "seen bias", "h bias", "last normalization scale"} <= found.keys()
    assert "last normalization mean" not in found
    for name, weight in {**wide, **trunk}.items():
        assert_equal(found[name], histogram(weight))


@pytest.mark.parametrize("limit", [None, 0.01])
def test_gradients_are_those_of_a_dense_twin(limit, batch):
    real, observed = Real(NETWORK, {"gradient_norm_limit": limit}, FIELDS), {}

    def observe(launched, update):
        observed.update(of_gradients(real.network, update))
        assert_equal(of_activations(real.network, launched.values)["mid"], histogram(launched.values["mid"]))

    twin = Twin(real.spec, real.network.layout.units)
    training = real.training.model_copy(update={"gradient_norm_limit": None})
    _, gradients, _ = twin.step(snapshot(real.network), batch, None, real.random, training, 0.5)
    prepared = real.network.prepare(batch, real.random, None)
    train_step(
        real.network,
        real.rule,
        Step(prepared, real.random, StepNumbers(1, real.rates), limit, observe=observe),
    )
    assert observed.keys() == {"h/in", "h bias", "g bias", "mid/h", "mid/g", "mid/age", "mid bias"}
    for name, found in observed.items():
        layer, _, end = name.replace(" ", "/").partition("/")
        assert found.norm == pytest.approx(float(gradients[layer, end].norm()), rel=1e-5)
    touched = torch.cat([batch["items"].indices, batch["wishes"].indices]).unique()
    assert observed["h/in"].numbers == 6 * len(touched)


@pytest.mark.parametrize("name", ["nesterov", "adam, split", "momentum, sampled", "rmsprop, on the input"])
def test_recording_moves_no_bit_and_can_be_turned_off(name, tmp_path):
    network, training = SETTINGS[name]
    data = books(tmp_path / "data")
    runs = {
        records: train(network, {**training, "histograms": records}, data, tmp_path / str(records))
        for records in (True, False)
    }
    assert runs[True].fingerprint() == runs[False].fingerprint()
    assert not (tmp_path / "False" / "histograms.jsonl").exists()
    lines = [json.loads(line) for line in (tmp_path / "True" / "histograms.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert all(line.keys() == {"epoch", "weights", "gradients", "activations"} for line in lines)


def test_the_last_line_counts_the_weights_that_the_run_ends_with(tmp_path):
    training = document({"kind": "momentum", "learning_rate": 0.1}, evaluation=None)
    model = train(UNTIED, training, books(tmp_path / "data"), tmp_path / "run")
    last = json.loads((tmp_path / "run" / "histograms.jsonl").read_text().splitlines()[-1])
    for name, weight in model.network.wide.items():
        assert_equal(Histogram.read(last["weights"][name]), histogram(all_rows(weight)))


def test_a_step_that_the_brake_skips_has_no_gradients(tmp_path, monkeypatch):
    def skip(brake, loss):
        del loss
        brake.seen += 1
        brake.left_out += brake.seen == 2 * STEPS
        return brake.seen == 2 * STEPS

    monkeypatch.setattr(Brake, "leaves_out", skip)
    training = document({"kind": "sgd", "learning_rate": 0.1}, evaluation=None, brake=True, epochs=2)
    train(UNTIED, training, Dataset.open(books(tmp_path / "data").path), tmp_path / "run")
    first, second = (tmp_path / "run" / "histograms.jsonl").read_text().splitlines()
    assert json.loads(first).keys() == {"epoch", "weights", "gradients", "activations"}
    assert json.loads(second).keys() == {"epoch", "weights"}
