"""Recurrent networks over several processes and threads: the bits of one."""

import pytest
from torch import distributed

from tests import sequences
from tests.parallel.matrix import outcome_of
from tests.parallel.workers import exchange
from widenet.data.dataset import Dataset
from widenet.parallel.local import LocalExchange
from widenet.parallel.threads import one_thread_an_operation
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("sequences") / "data"
    sequences.write(path, weights=[0.5 + number % 4 for number in range(sequences.EXAMPLES)])
    return path


def outcome(name, data, exchanged):
    network, training = sequences.documents(name)
    return outcome_of(NetworkSpec.of(network), TrainingSpec.of(training), Dataset.open(data), exchanged)


def in_many(data):
    rank = distributed.get_rank()
    return [outcome(name, data, exchange(8, 1 + (rank + number) % 2)) for number, name in enumerate(sequences.SETTINGS)]


def in_one(data):
    with one_thread_an_operation():
        return [outcome(name, data, LocalExchange(8)) for name in sequences.SETTINGS]


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_number_of_processes_and_of_threads_gives_the_bits_of_one(size, data, groups):
    groups(size).start(in_many, data)
    alone = in_one(data)
    for found in groups(size).outcomes():
        assert [name for name, one, many in zip(sequences.SETTINGS, alone, found, strict=True) if one != many] == []


def test_the_settings_are_different_trainings(data):
    assert len({found[1] for found in in_one(data)}) == len(sequences.SETTINGS)
