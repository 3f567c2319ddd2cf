"""Workers that exchange nothing but scores."""

from multiprocessing import Pipe
from threading import Thread

import numpy as np
import pytest

from labs.classifier import examples, first_weights, loss
from labs.evolution import strategy, workers
from labs.evolution.strategy import Settings
from labs.evolution.workers import evolve_here, evolve_with, share

SETTINGS, DATA, START = Settings(pairs=6, rate=0.003), examples(40), first_weights(0)


@pytest.fixture(scope="module")
def alone():
    return evolve_with(SETTINGS, START, DATA, 4, 1)[0]


@pytest.mark.parametrize("number", [1, 2, 4])
def test_weights_are_the_same_bits_for_every_number_of_workers(alone, number):
    found = evolve_with(SETTINGS, START, DATA, 4, number)
    assert {weights.tobytes() for weights in found} == {alone.tobytes()}


def test_the_population_learns(alone):
    assert loss(alone, DATA) < loss(START, DATA)


@pytest.mark.parametrize("number", [1, 2, 4, 5])
def test_every_pair_has_one_worker(number):
    assert [pair for worker in range(number) for pair in share(SETTINGS, worker, number)] == list(range(6))


def test_scores_may_be_longer_than_a_pipe_holds(monkeypatch):
    monkeypatch.setattr(workers, "scored", lambda *_: np.zeros((32768, 2)))
    monkeypatch.setattr(strategy, "updated", lambda *given: given[2])
    found = []

    def work(worker, end):
        found.append(evolve_here(Settings(pairs=65536), START, DATA, 1, worker, [end]))

    threads = [Thread(target=work, args=each, daemon=True) for each in enumerate(Pipe())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [scores.shape for scores in found] == [(65536, 2)] * 2
