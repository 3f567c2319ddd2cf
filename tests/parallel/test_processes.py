"""Shards over several processes: the bits of one process, whatever the network."""

from functools import cache

import pytest
from torch import distributed

from tests import sequences
from tests.parallel import matrix
from tests.parallel.matrix import outcome, outcome_in, write_data
from tests.parallel.workers import exchange
from widenet.data.dataset import Dataset
from widenet.parallel.exchange import Exchange, one_thread_an_operation
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def in_many(name, data):
    """What each case gives in this process; threads differ from case to case and from process to process."""
    cases = getattr(matrix, name)
    return [
        outcome(case, data, exchange(8, 1 + (distributed.get_rank() + number) % 2))
        for number, case in enumerate(cases)
    ]


@cache
def in_one(name, data):
    with one_thread_an_operation():
        return [outcome(case, data, Exchange(8)) for case in getattr(matrix, name)]


SIZES = {1: "FEW_VALUES", 2: "EVERY_VALUE", 3: "SOME_VALUES", 4: "FEW_VALUES"}
MORE = {2: "DRAWN", 3: "EVERY_VALUE", 8: "SOME_VALUES"}
LONG = [pytest.param(*each, marks=pytest.mark.long) for each in MORE.items()]


@pytest.mark.parametrize(("size", "name"), [*SIZES.items(), *LONG])
def test_every_number_of_processes_and_of_threads_gives_the_bits_of_one(size, name, data, groups):
    cases = getattr(matrix, name)
    groups(size).start(in_many, name, data)
    alone = in_one(name, data)
    for found in groups(size).outcomes():
        assert [case for case, one, many in zip(cases, alone, found, strict=True) if one != many] == []


@pytest.fixture(scope="module")
def songs(tmp_path_factory):
    path = tmp_path_factory.mktemp("sequences") / "data"
    sequences.write(path, weights=[0.5 + number % 4 for number in range(sequences.EXAMPLES)])
    return path


def along(name, songs, exchanged):
    network, training = sequences.documents(name)
    return outcome_in(NetworkSpec.of(network), TrainingSpec.of(training), Dataset.open(songs), exchanged)


@cache
def along_in_one(name, songs):
    with one_thread_an_operation():
        return along(name, songs, Exchange(8))


def along_in_many(names, songs):
    rank = distributed.get_rank()
    return [along(name, songs, exchange(8, 1 + (rank + number) % 2)) for number, name in enumerate(names)]


APART = [(2, 2), (3, 3), (4, 5), *(pytest.param(size, 1, marks=pytest.mark.long) for size in (1, 2, 3))]


@pytest.mark.parametrize(("size", "apart"), APART)
def test_along_sequences_too(size, apart, songs, groups):
    names = list(sequences.SETTINGS)[::apart]
    groups(size).start(along_in_many, names, songs)
    alone = {name: along_in_one(name, songs) for name in names}
    assert len({found[1] for found in alone.values()}) == len(names)
    for found in groups(size).outcomes():
        assert dict(zip(names, found, strict=True)) == alone
