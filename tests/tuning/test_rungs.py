"""Rungs: their epochs, and which trials are promoted."""

from dataclasses import replace

import numpy as np
import pytest

from widenet.tuning.rungs import Rungs, Trial


@pytest.mark.parametrize(
    ("epochs", "num_rungs", "reduction", "every", "ends"),
    [
        (27, 3, 3, 1, (3, 9, 27)),
        (20, 3, 3, 1, (3, 7, 20)),
        (20, 3, 3, 2, (4, 8, 20)),
        (20, 1, 3, 1, (20,)),
        (3, 4, 3, 1, (1, 3)),
        (10, 2, 4, 7, (7, 10)),
    ],
)
def test_each_rung_has_the_epochs_of_the_next_one_over_the_reduction(
    epochs, num_rungs, reduction, every, ends
):
    assert Rungs.of(epochs, num_rungs, reduction, every).epochs == ends


@pytest.mark.parametrize("trend", [0.0, 1.0])
def test_a_third_of_a_rung_is_promoted_of_its_best_and_nobody_twice(trend):
    """The rule, read from its definition: among the best n // 3 of the n at a rung, whoever waits there.

    At most n // 3 go on, although with a trend each trial is better than all before.
    """
    rungs, random = Rungs((1, 3, 9), 3), np.random.default_rng(0)
    trials = []
    for number in range(40):
        trials.append(Trial(number, {}, 0, {1: float(random.random()) + trend * number}))
        while (promoted := rungs.promoted(trials, is_settled=False)) is not None:
            there = [trial for trial in trials if rungs.epochs[promoted.target] in trial.reached]
            at = rungs.epochs[promoted.target]
            better = sum(trial.reached[at] > promoted.reached[at] for trial in there)
            assert better < len(there) // 3
            assert max(promoted.reached) == at
            target = promoted.target + 1
            value = promoted.reached[at] + float(random.random())
            reached = {**promoted.reached, rungs.epochs[target]: value}
            trials[promoted.number] = replace(promoted, target=target, reached=reached)
        for rung in (0, 1):
            ranked = rungs.ranked(trials, rung)
            assert sum(trial.target > rung for trial in ranked) == len(ranked) // 3
    assert [sum(trial.target >= rung for trial in trials) for rung in range(3)] == [40, 13, 4]
    assert rungs.best(trials).target == 2


def test_once_all_wait_the_best_of_a_rung_goes_on_although_enough_have_gone():
    rungs = Rungs((1, 3), 3)
    trials = [
        Trial(0, {}, 1, {1: 0.1, 3: 0.2}),
        *(Trial(number, {}, 0, {1: 0.1 * number}) for number in range(1, 5)),
    ]
    assert rungs.promoted(trials, is_settled=False) is None
    assert rungs.promoted(trials, is_settled=True).number == 4


def test_a_failed_trial_is_neither_ranked_nor_trained():
    rungs = Rungs((1, 3), 2)
    trials = [
        Trial(0, {}, 1, {1: 0.9}, problem="diverged"),
        Trial(1, {}, 0, {1: 0.1}),
        Trial(2, {}, 0, {1: 0.2}),
    ]
    assert rungs.promoted(trials, is_settled=False).number == 2
    assert not rungs.is_unfinished(trials[0])


def test_a_training_that_ended_by_itself_counts_at_all_later_rungs():
    rungs = Rungs((1, 3, 9), 3)
    ended = Trial(0, {}, 0, {9: 0.4})
    assert [rungs.value(ended, rung) for rung in range(3)] == [0.4, 0.4, 0.4]
    assert rungs.is_complete(ended)
    assert rungs.promoted([ended], is_settled=True) is None
