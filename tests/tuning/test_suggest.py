"""Suggestions: they repeat nothing, depend on the trials and the seed alone, and find what is good."""

import math
from itertools import islice

import pytest

from tests.tuning.studies import RATE, SPACE, UNITS
from widenet.tuning.rungs import Rungs, Trial
from widenet.tuning.space import SpaceSpec
from widenet.tuning.suggest import importance, suggestions

RUNGS = Rungs((1, 3, 9), 3)


@pytest.fixture(scope="module")
def space():
    return SpaceSpec.of(SPACE, "space.json")


def value(choices):
    """Best at a learning rate of 0.02; the units hardly matter."""
    return -abs(math.log(float(choices[RATE]) / 0.02)) + 0.01 * int(choices[UNITS])


def searched(space, number, seed=0):
    """The trials of so many suggestions, each of which has reached the first rung."""
    trials = []
    for position in range(number):
        choices = next(suggestions(space, RUNGS, trials, seed))
        trials.append(Trial(position, choices, 0, {1: value(choices)}))
    return trials


@pytest.fixture(scope="module")
def trials(space):
    return searched(space, 30)


def test_suggestions_depend_on_the_trials_and_the_seed_alone(space, trials):
    assert searched(space, 12) == trials[:12]
    assert searched(space, 2, seed=1)[0] != trials[0]


def test_suggestions_are_within_the_space_and_never_repeated(space, trials):
    assert {trial.choices[UNITS] for trial in trials} == {"2", "4", "6"}
    assert all(0.001 <= trial.choices[RATE] <= 0.3 for trial in trials)
    assert all(trial.choices[RATE] == float(f"{trial.choices[RATE]:.4g}") for trial in trials)
    known = [trial.choices for trial in trials]
    assert not any(choices in known for choices in islice(suggestions(space, RUNGS, trials, 0), 5))


def test_suggestions_end_with_the_space():
    grid = {
        "network": SPACE["network"],
        "training": {
            **SPACE["training"],
            "optimizer": {"kind": "adam", "learning_rate": {"from": [0.1, 0.2]}},
        },
    }
    whole = searched(SpaceSpec.of(grid, "space.json"), 6)
    assert len({tuple(trial.choices.values()) for trial in whole}) == 6
    assert list(suggestions(SpaceSpec.of(grid, "space.json"), RUNGS, whole, 0)) == []


def test_what_decides_the_metric_is_important(space, trials):
    shares = importance(space, RUNGS, trials)
    assert list(shares) == [RATE, UNITS]
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[RATE] > 0.8
    assert importance(space, RUNGS, trials[:1]) == {}
    assert importance(space, RUNGS, [Trial(0, trials[0].choices)]) == {}
