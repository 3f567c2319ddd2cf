"""Hours: seconds of the parts added up, and lower bounds from published rates, both computed by hand."""

from dataclasses import replace

import pytest

from widenet.plan.binding import bind
from widenet.plan.devices import DEVICES, NamedDevice
from widenet.plan.hours import Hours, Rates, hours, moved_bytes, published_rates
from widenet.plan.job import Job
from widenet.plan.layout import Width
from widenet.plan.work import work
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

WIDTH, HIDDEN, ENTRIES, BATCH = 1000, 32, 5.0, 10


def job(output=None, num_processes=1, **training):
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": HIDDEN, "bias": False},
        {"name": "out", "kind": "output", "field": "items", "bias": False, **(output or {})},
    ]
    spec = TrainingSpec.of({"batch_size": BATCH, "optimizer": "sgd", **training})
    layout = bind(NetworkSpec.of({"layers": layers}), spec, {"items": Width(WIDTH)})
    return Job.of(layout, {"items": ENTRIES}, num_processes=num_processes, device="cuda")


RATES = Rates(2.0, 0.5, 0.25, "a clock")


def test_epochs_and_evaluations_add_up():
    planned = job(epochs=5, evaluation={"every_epochs": 2})
    assert hours(planned, RATES, 21, 8) == Hours(
        step_seconds=2.0,
        steps_per_epoch=3,
        epoch_seconds=6.0,
        evaluation_seconds=2.0,
        training_seconds=5 * 6.0 + 3 * 2.0,
        recommendation_seconds=10.5,
        source="a clock",
        at_least=False,
    )


def test_checkpoints_after_epochs_add_up():
    planned = job(epochs=5, checkpoints={"every_epochs": 2})
    found = hours(planned, replace(RATES, checkpoint_seconds=0.5), 21)
    assert (found.checkpoint_seconds, found.training_seconds) == (0.5, 5 * 6.0 + 3 * 0.5)


def test_without_an_evaluation_only_steps_count():
    found = hours(job(epochs=2), RATES, 20)
    assert (found.evaluation_seconds, found.training_seconds) == (None, 8.0)


def test_without_a_number_of_examples_only_a_step_is_known():
    found = hours(job(), RATES, None)
    assert (found.step_seconds, found.training_seconds, found.recommendation_seconds) == (2.0, None, None)


@pytest.mark.parametrize(
    ("output", "training", "numbers"),
    [
        ({}, {}, 3 * (ENTRIES + WIDTH) * HIDDEN),
        ({}, {"optimizer": "adam"}, 7 * (ENTRIES + WIDTH) * HIDDEN),
        ({"sample": {"kind": "uniform", "units": 50}}, {}, 3 * (ENTRIES + 50) * HIDDEN),
        ({"activation": "linear", "loss": "l2"}, {"batch_size": 512}, 3 * 2 * ENTRIES * HIDDEN),
    ],
)
def test_a_step_moves_the_rows_that_it_touches(output, training, numbers):
    assert moved_bytes(job(output, **training)) == 4 * numbers


SLOW = NamedDevice(10**9, {"float32": 1e6, "bfloat16": 1e7}, 1e30, 1e30, 1e30, "a sheet")


def test_operations_bound_a_step_and_a_ranking():
    found = published_rates(job(), SLOW)
    products = 6 * BATCH * WIDTH * HIDDEN + 4 * BATCH * ENTRIES * HIDDEN
    assert found.step_seconds == pytest.approx(products / 1e6)
    assert found.ranking_seconds == pytest.approx(2 * WIDTH * HIDDEN / 1e6)
    assert found.at_least
    halved = published_rates(job(precision="bfloat16"), SLOW)
    assert halved.step_seconds == pytest.approx(products / 1e7)
    assert halved.ranking_seconds == found.ranking_seconds


def test_memory_bounds_a_step_and_a_ranking():
    device = replace(SLOW, operations={"float32": 1e30}, memory_rate=1e6)
    found = published_rates(job(), device)
    assert found.step_seconds == pytest.approx(moved_bytes(job()) / 1e6)
    assert found.ranking_seconds == pytest.approx(4 * WIDTH * HIDDEN / 1e6 / 512)


def test_the_link_bounds_a_step_of_several_processes():
    device = replace(SLOW, operations={"float32": 1e30}, link_rate=1e3)
    assert published_rates(job(), device).step_seconds < 1e-20
    assert published_rates(job(num_processes=2, shards=2), device).step_seconds > 1


def test_the_way_to_the_host_bounds_a_step_whose_weights_lie_there():
    device = replace(SLOW, operations={"float32": 1e30}, host_rate=1e6)
    streamed = replace(job(), device="cuda", weights_in="host")
    needed = work(streamed)
    assert needed.written_bytes > 0
    copied = needed.read_bytes + needed.written_bytes
    assert published_rates(streamed, device).step_seconds == pytest.approx(copied / 1e6)
    assert published_rates(replace(streamed, weights_in="device"), device).step_seconds < 1e-20


def test_a_named_device_knows_every_precision():
    assert all(set(device.operations) == {"float32", "tf32", "bfloat16"} for device in DEVICES.values())
    h200 = DEVICES["h200"]
    assert (h200.memory_bytes, h200.memory_rate, h200.operations["bfloat16"]) == (141e9, 4.8e12, 989.5e12)


def test_a_split_layer_moves_the_rows_of_its_process():
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": HIDDEN, "bias": False},
        {"name": "deep", "units": HIDDEN, "bias": False, "split": True},
        {"name": "out", "kind": "output", "field": "items", "bias": False},
    ]
    spec = TrainingSpec.of({"batch_size": BATCH, "optimizer": "sgd"})
    layout = bind(NetworkSpec.of({"layers": layers}), spec, {"items": Width(WIDTH)})
    planned = Job.of(layout, {"items": ENTRIES}, num_processes=8)
    numbers = (ENTRIES + HIDDEN + WIDTH) * HIDDEN / 8
    assert moved_bytes(planned) == 3 * 4 * numbers
