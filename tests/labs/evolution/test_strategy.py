"""The evolution strategy on functions whose best point is known."""

import numpy as np

from labs.evolution.strategy import Settings, evolve, noise


def test_a_population_climbs_a_hill():
    settings, best = Settings(pairs=16, deviation=0.1, rate=0.05), np.array([1.0, -2.0, 0.5])

    def scores(weights, generation):
        moves = [0.1 * noise(settings, generation, pair, 3) for pair in range(16)]
        return np.array(
            [[-((weights + sign * move - best) ** 2).sum() for sign in (1, -1)] for move in moves]
        )

    found = evolve(settings, np.zeros(3), 200, scores)
    assert np.abs(found - best).max() < 0.1
