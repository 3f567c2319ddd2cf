"""The tables of idle steps follow rates that turn out lower, to the bit."""

import numpy as np
import pytest

from widenet.training.idle_steps import Roads, Shrinkage

SCHEDULES = {
    "constant": lambda n: np.full(n + 1, 0.1),
    "falling": lambda n: 0.1 / (1 + 0.01 * np.arange(n + 1)),
    "cosine": lambda n: 0.05 * (1 + np.cos(np.pi * np.arange(n + 1) / n)),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize(
    "ask", [lambda momentum: Roads(momentum).ahead, lambda momentum: Shrinkage(momentum / 9).logs]
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


def test_the_road_ahead_is_the_sum_of_what_the_velocity_still_covers():
    rates, roads = np.array([0.0, 0.4, 0.3, 0.2, 0.1]), Roads(0.5)
    roads.ahead(rates, 1)
    rates[2] = 0.03
    wanted = [sum(rates[n + j] * 0.5**j for j in range(1, 5 - n)) for n in range(5)]
    assert roads.ahead(rates, 2).tolist() == pytest.approx(wanted, rel=1e-15)
