"""Learning rates of every step: by hand, and as torch's schedulers give them."""

import math

import numpy as np
import pytest
import torch

from widenet.spec.training import TrainingSpec
from widenet.training.schedules import rates


def rates_of(schedule, steps_per_epoch=4, epochs=3, warmup_steps=0, rate=0.5):
    document = {
        "epochs": epochs,
        "optimizer": {"kind": "sgd", "learning_rate": rate},
        "schedule": schedule,
        "warmup_steps": warmup_steps,
    }
    return rates(TrainingSpec.of(document), steps_per_epoch)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5] * 12),
        ({"kind": "step", "every_epochs": 2, "factor": 0.1}, [0.5] * 8 + [0.05] * 4),
        ({"kind": "step", "every_epochs": 1, "factor": 0.5}, [0.5] * 4 + [0.25] * 4 + [0.125] * 4),
        ({"kind": "exponential", "factor": 0.0625}, [0.5 / 2**step for step in range(12)]),
        (
            {"kind": "inverse", "decay": 1.0},
            [0.5, 0.25, 0.5 / 3, 0.125, 0.1, 0.5 / 6, 0.5 / 7, 0.0625, 0.5 / 9, 0.05, 0.5 / 11, 0.5 / 12],
        ),
        (
            {"kind": "cosine", "floor": 0.0},
            [0.25 * (1 + math.cos(math.pi * step / 12)) for step in range(12)],
        ),
    ],
)
def test_the_rates_of_three_epochs_of_four_steps_are_those_computed_by_hand(schedule, expected):
    found = rates_of(schedule)
    assert found.dtype == np.float64
    assert len(found) == 13
    assert found[0] == 0.0
    assert found[1:].tolist() == pytest.approx(expected, rel=1e-14)


def test_a_cosine_begins_at_the_rate_is_halfway_in_the_middle_and_ends_towards_the_floor():
    found = rates_of({"kind": "cosine", "floor": 0.2}, steps_per_epoch=100, epochs=10)
    assert found[1] == 0.5
    assert found[501] == pytest.approx(0.3)
    assert 0.1 < found[1000] < 0.1001
    assert bool((np.diff(found[1:]) < 0).all())


def test_warm_up_rises_linearly_and_then_leaves_the_schedule_alone():
    schedule = {"kind": "step", "every_epochs": 1, "factor": 0.5}
    found, without = rates_of(schedule, warmup_steps=5), rates_of(schedule)
    assert found[1:].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.25, *without[6:]])


def test_a_warm_up_longer_than_the_training_never_reaches_the_rate():
    assert rates_of("constant", warmup_steps=24)[1:].tolist() == pytest.approx(
        [0.5 * n / 24 for n in range(1, 13)]
    )


def torch_rates(make, steps, every):
    """The rates that a scheduler of torch gives each of some steps, called once in so many steps."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    scheduler, found = make(optimizer), []
    for step in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if (step + 1) % every == 0:
            scheduler.step()
    return found


def test_the_cosine_is_torchs_stepped_every_step():
    expected = torch_rates(lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 60, eta_min=0.05), 60, 1)
    assert rates_of({"kind": "cosine", "floor": 0.1}, 12, 5)[1:].tolist() == pytest.approx(expected, rel=1e-9)


def test_the_steps_are_torchs_stepped_every_epoch():
    expected = torch_rates(lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.3), 60, 12)
    assert rates_of({"kind": "step", "every_epochs": 2, "factor": 0.3}, 12, 5)[1:].tolist() == pytest.approx(
        expected, rel=1e-12
    )


def test_the_exponential_meets_torchs_at_every_epochs_beginning():
    expected = torch_rates(lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.7), 60, 12)
    assert rates_of({"kind": "exponential", "factor": 0.7}, 12, 5)[1::12].tolist() == pytest.approx(
        expected[::12], rel=1e-12
    )


def test_the_inverse_is_torchs_lambda():
    expected = torch_rates(
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + 0.01 * step)), 60, 1
    )
    assert rates_of({"kind": "inverse", "decay": 0.01}, 12, 5)[1:].tolist() == pytest.approx(
        expected, rel=1e-12
    )
