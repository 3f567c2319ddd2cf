"""Workers that exchange nothing but scores."""

import pytest

from labs.classifier import examples, first_weights
from labs.evolution.strategy import Settings
from labs.evolution.workers import evolve_with

SETTINGS, DATA, START = Settings(pairs=6, rate=0.003), examples(40), first_weights(0)


@pytest.fixture(scope="module")
def alone():
    return evolve_with(SETTINGS, START, DATA, 4, 1)[0]


@pytest.mark.parametrize("number", [2, 4])
def test_weights_are_the_same_bits_for_every_number_of_workers(alone, number):
    found = evolve_with(SETTINGS, START, DATA, 4, number)
    assert {weights.tobytes() for weights in found} == {alone.tobytes()}
