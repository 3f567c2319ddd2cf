"""Learning rates of every step: by hand, and as torch's schedulers give them."""

import math

import numpy as np
import pytest

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


def test_warm_up_rises_linearly_and_then_leaves_the_schedule_alone():
    schedule = {"kind": "step", "every_epochs": 1, "factor": 0.5}
    found, without = rates_of(schedule, warmup_steps=5), rates_of(schedule)
    assert found[1:].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.25, *without[6:]])
