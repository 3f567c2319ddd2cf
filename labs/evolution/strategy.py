"""OpenAI's evolution strategy: a population of noisy copies, of which only scores are exchanged.

Salimans, Ho, Chen, Sidor and Sutskever, "Evolution Strategies as a Scalable Alternative to Reinforcement
Learning", 2017: mirrored sampling, ranks instead of scores, shared random seeds.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from labs.classifier import Examples, Floats, loss
from widenet.randomness import stream


@dataclass(frozen=True)
class Settings:
    """Settings of the strategy.

    Attributes:
        pairs: Pairs of a generation: the weights plus a noise, and minus the same noise.
        deviation: Standard deviation of the noise.
        rate: Learning rate.
        seed: Seed of the noise.
    """

    pairs: int = 128
    deviation: float = 0.05
    rate: float = 0.03
    seed: int = 0


Scores = Callable[[Floats, int], NDArray[np.float64]]
"""Gives the scores of a generation's pairs, [pairs, 2], from the weights and the generation's number."""


def noise(settings: Settings, generation: int, pair: int, size: int) -> Floats:
    """Return the noise of a pair, which every worker can compute."""
    return stream(settings.seed, "labs/evolution/noise", generation, pair).standard_normal(size)


def scored(
    settings: Settings, weights: Floats, data: Examples, generation: int, pairs: range
) -> NDArray[np.float64]:
    """Return the scores of some pairs, the negative loss of plus and minus: float64 [pairs, 2]."""
    found = np.empty((len(pairs), 2))
    for place, pair in enumerate(pairs):
        moved = settings.deviation * noise(settings, generation, pair, len(weights))
        found[place] = -loss(weights + moved, data), -loss(weights - moved, data)
    return found


def ranks(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return centred ranks from -1/2 to 1/2, in the shape of the scores. Equal scores rank by position."""
    places = np.empty(scores.size)
    places[np.argsort(scores, axis=None, kind="stable")] = np.arange(scores.size)
    return (places / (scores.size - 1) - 0.5).reshape(scores.shape)


def updated(settings: Settings, weights: Floats, scores: NDArray[np.float64], generation: int) -> Floats:
    """Return the weights of the next generation; pairs are added up in the order of their numbers."""
    ranked = ranks(scores)
    total = np.zeros_like(weights)
    for pair in range(settings.pairs):
        share = ranked[pair, 0] - ranked[pair, 1]
        total += share * noise(settings, generation, pair, len(weights))
    return weights + settings.rate / (2 * settings.pairs * settings.deviation) * total


def evolve(settings: Settings, weights: Floats, generations: int, scores: Scores) -> Floats:
    """Return the weights after some generations."""
    for generation in range(generations):
        weights = updated(settings, weights, scores(weights, generation), generation)
    return weights
