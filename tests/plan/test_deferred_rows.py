"""Drifting outputs: which they are, and what they cost."""

from dataclasses import replace

import pytest

from widenet.plan.binding import bind
from widenet.plan.deferred_rows import catch_up_window, deferred_columns, defers_rows
from widenet.plan.job import Job
from widenet.plan.layout import Width
from widenet.plan.memory import memory
from widenet.plan.report import checkpoint_bytes
from widenet.plan.work import work
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

FIELDS = {"items": Width(10**6), "few": Width(20), "age": Width(9000, kind="dense")}


def network(hidden=(), **output):
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "h", "units": 64, **dict(hidden)},
        {"name": "out", "kind": "output", "field": "items", "activation": "linear", "loss": "l2", **output},
    ]
    return NetworkSpec.of({"layers": layers})


def training(**changes):
    return TrainingSpec.of({"optimizer": "sgd", **changes})


def drifting(network, training):
    return defers_rows(network.outputs[0], bind(network, training, FIELDS))


@pytest.mark.parametrize(
    ("network", "training"),
    [
        (network(), training()),
        (network(bias=False, bias_start=0.5, loss_weight=2.0), training(l2=0.1, schedule="cosine", shards=1)),
        (network(bias_l2=0.1, values="ignore", units=2 * 10**6), training(batch_size=64)),
    ],
)
def test_a_linear_output_under_l2_drifts_under_sgd(network, training):
    assert drifting(network, training)


@pytest.mark.parametrize(
    ("network", "training"),
    [
        (network(activation="sigmoid"), training()),
        (network(loss="l1"), training()),
        (network(loss="l2_hinge"), training()),
        (network(cosine={}), training()),
        (network(weight_norm=1.0), training()),
        (network(field="age"), training()),
        (network(weights={"layer": "h", "transposed": True}), training()),
        (network({"weights": {"layer": "out", "transposed": True}}), training()),
        (network(), training(optimizer="momentum")),
        (network(), training(optimizer="adam")),
        (network(), training(l1=0.1)),
        (network(), training(gradient_norm_limit=1.0)),
        (network(), training(precision="bfloat16")),
    ],
)
def test_it_does_not_where_a_step_is_no_product_with_one_matrix(network, training):
    assert not drifting(network, training)


def test_it_does_not_where_that_would_not_halve_the_work():
    assert not drifting(network(field="few"), training())
    assert drifting(network({"units": 512}), training(batch_size=64))
    assert not drifting(network({"units": 512}), training(batch_size=1))


def job(defers_rows=True, **changes):
    made = training(optimizer="sgd", **changes.pop("training", {}))
    network_ = network(**changes.pop("network", {}))
    if not defers_rows:
        made = made.model_copy(update={"l1": 1e-9})
    return Job.of(
        bind(network_, made, {"items": Width(changes.pop("width", 10**6))}), {"items": 30.0}, **changes
    )


def test_its_work_grows_with_the_root_of_the_width_and_is_divided_among_processes():
    narrow, wide = (work(job(width=width)).operations for width in (10**6, 10**8))
    assert narrow * 3 < wide < narrow * 12
    assert work(job()).operations < work(job(defers_rows=False)).operations / 40
    assert work(job(num_processes=4)).operations < 0.7 * work(job()).operations


def test_what_it_sends_does_not_depend_on_the_width():
    assert len({work(job(width=width, num_processes=4)).sent_bytes for width in (10**6, 10**7, 10**8)}) == 1


def test_it_holds_a_matrix_for_each_step_of_a_window_and_four_bytes_a_row():
    asked, other = memory(job()), memory(job(defers_rows=False))
    window = catch_up_window(10**6, 65)
    assert asked.weights == other.weights
    assert asked.state - other.state == 4 * 10**6 + 4 * (window + 1) * 65**2 + 8 * 65**2
    assert checkpoint_bytes(job()) == asked.weights + asked.state
    halved = memory(replace(job(), num_processes=2))
    assert asked.state - halved.state == 2 * 10**6


def test_a_row_is_its_weights_and_its_bias():
    for bias in (True, False):
        asked = network(bias=bias)
        assert deferred_columns(asked.outputs[0], bind(asked, TrainingSpec(), FIELDS)) == 64 + bias
