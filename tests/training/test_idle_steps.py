"""The tables of idle steps follow rates that turn out lower, to the bit."""

import numpy as np
import pytest

from widenet.training.idle_steps import PathSums, Shrinkage

SCHEDULES = {
    "constant": lambda n: np.full(n + 1, 0.1),
    "falling": lambda n: 0.1 / (1 + 0.01 * np.arange(n + 1)),
    "cosine": lambda n: 0.05 * (1 + np.cos(np.pi * np.arange(n + 1) / n)),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize(
    "ask", [lambda momentum: PathSums(momentum).ahead, lambda momentum: Shrinkage(momentum / 9).logs]
)
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.99])
def test_asked_at_every_step_or_at_the_last_one_the_numbers_are_the_same(momentum, ask, schedule):
    rates, followed = schedule(3000), ask(momentum)
    lowered = [1, 2, *range(100, 124), 700, 2999, 3000]
    for step in range(3001):
        if step in lowered:
            rates[step] *= 0.1
        found = followed(rates, step)
        if step in (0, 1, 123, 124, 800, 3000):
            assert found[: step + 1].tolist() == ask(momentum)(rates, step)[: step + 1].tolist()


def test_a_path_sum_is_the_distance_that_a_velocity_still_covers():
    rates, sums = np.array([0.0, 0.4, 0.3, 0.2, 0.1]), PathSums(0.5)
    sums.ahead(rates, 1)
    rates[2] = 0.03
    wanted = [sum(rates[n + j] * 0.5**j for j in range(1, 5 - n)) for n in range(5)]
    assert sums.ahead(rates, 2).tolist() == pytest.approx(wanted, rel=1e-15)
