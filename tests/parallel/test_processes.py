"""Shards over several processes: the bits of one process, whatever the network; and what is sent."""

import math
import random
from fractions import Fraction
from functools import cache

import pytest
import torch
from torch import distributed

from tests import sequences
from tests.parallel import matrix
from tests.parallel.matrix import (
    outcome,
    outcome_in,
    write_data,
)
from tests.parallel.workers import exchange
from widenet.data.dataset import Dataset
from widenet.kernels.fixed_point import exact_sum
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
MORE = {2: "EVERY_PAIR", 3: "EVERY_VALUE", 8: "SOME_VALUES"}
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


def terms_of(seed, count=8):
    """Terms of very different magnitude that nearly cancel."""
    chance = random.Random(seed)
    large = [
        math.ldexp(chance.uniform(-1, 1), chance.choice([120, 60, 30, 0, -30, -100]))
        for _ in range(count // 2)
    ]
    terms = [*large, *(-number for number in large)]
    terms[chance.randrange(count)] += math.ldexp(chance.random(), chance.choice([30, 0, -40]))
    chance.shuffle(terms)
    return [
        torch.tensor([term, 1.0], dtype=chance.choice([torch.float32]) if seed % 2 else torch.float64)
        for term in terms
    ]


def own(exchanged, terms):
    return [terms[shard] for shard in exchanged.shards]


def summed(seeds):
    here = exchange()
    return [here.sum(own(here, terms_of(seed)), "").tolist() for seed in seeds]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_sum_is_the_true_one_to_a_part_in_two_to_the_54_of_the_largest_term(size, groups):
    seeds = range(40)
    found = groups(size)(summed, seeds)
    assert all(each == found[0] for each in found)
    for seed, (total, ones) in zip(seeds, found[0], strict=True):
        terms = terms_of(seed)
        exact, peak = (
            sum(Fraction(term[0].item()) for term in terms),
            max(abs(Fraction(term[0].item())) for term in terms),
        )
        assert abs(Fraction(total) - exact) <= peak / 2**54 + abs(exact) / (2**23 if seed % 2 else 2**52)
        assert [total, ones] == exact_sum(terms).tolist()


BAD = (math.nan, math.inf, -math.inf)


def terms_with(bad, place):
    """A term a shard, of two rows; that of one shard holds a number that is not finite, in its first row."""
    return [
        torch.tensor([[float(shard), bad if shard == place else -1.0, -2.0], [1.0, 2.0, float(shard)]])
        for shard in range(8)
    ]


def undefined(place):
    here = exchange()
    return [here.sum(own(here, terms_with(bad, place)), "").tolist() for bad in BAD]


@pytest.mark.parametrize("place", [0, 3, 7])
def test_one_undefined_number_makes_the_same_numbers_undefined_in_every_process_as_in_one(place, groups):
    expected = [Exchange(8).sum(terms_with(bad, place), "").tolist() for bad in BAD]
    assert all(math.isnan(number) for total in expected for number in total[0])
    for found in groups(4)(undefined, place):
        assert str(found) == str(expected)


def combined():
    """Every way to combine, over terms that say whose they are."""
    here, rank = exchange(), distributed.get_rank()
    terms = [torch.tensor([shard, -shard]) for shard in here.shards]
    empty = here.sum([torch.zeros(0, 3) for _ in here.shards], "")
    return (
        here.each(lambda shard: shard),
        torch.stack(here.gather(terms, "")).tolist(),
        here.start_any([lambda: False, lambda: rank == 2, lambda: True], "")(),
        here.collect((rank, here.leads), ""),
        tuple(empty.shape),
    )


@pytest.mark.parametrize(
    "held", [[[0, 1], [2, 3], [4, 5], [6, 7]], [[0, 1, 2], [3, 4, 5], [6, 7]]], ids=["evenly", "unevenly"]
)
def test_processes_hold_the_shards_in_order_and_combine_them_in_order(held, groups):
    found = groups(len(held))(combined)
    assert [each[0] for each in found] == held
    for each in found:
        assert each[1] == [[shard, -shard] for shard in range(8)]
        assert each[2:] == ([False, True, True], [(rank, rank == 0) for rank in range(len(held))], (0, 3))
