"""Sequences whose order looks random are noted; those whose neighbours belong together are not."""

import math

import numpy as np
import pytest

from widenet.data import random_order
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.data.random_order import looks_random

USERS, LENGTH, ITEMS, TASTES = 6_000, 10, 200, 5
NOTE = (
    "note: the order of each user's items looks random: shuffled sequences have the same pairs of neighbours"
    " as often. A dataset without `sequence=True` may give a better model"
)


def sequences(kind, users=USERS, share=0.5):
    """Items of users with one taste each, of which so large a share follows from the item before."""
    random = np.random.default_rng(5)
    of_taste = ITEMS // TASTES
    base = random.integers(TASTES, size=(users, 1)) + TASTES * np.sort(
        random.integers(of_taste, size=(users, LENGTH, 2))
    ).min(axis=2)
    if kind == "random":
        return base.tolist()
    if kind == "tastes that change":
        return np.where(np.arange(LENGTH) < LENGTH // 2, base, base[::-1]).tolist()
    follows = random.random((users, LENGTH)) < share
    step = np.where(random.random((users, LENGTH)) < 0.5, 1, -1) if kind == "without direction" else 1
    steps = np.broadcast_to(step, (users, LENGTH))
    for place in range(1, LENGTH):
        near = (base[:, place - 1] + TASTES * steps[:, place]) % ITEMS
        base[:, place] = np.where(follows[:, place], near, base[:, place])
    return base.tolist()


def dataset(folder, rows, width=ITEMS):
    return dataset_from_lists(folder, rows, width=width, sequence=True)


@pytest.mark.parametrize(
    ("kind", "looks"),
    [
        ("random", True),
        ("with direction", False),
        ("without direction", False),
        ("tastes that change", False),
    ],
)
@pytest.mark.parametrize("most", [2**19, 40_000])
def test_only_an_order_that_says_nothing_looks_random(kind, looks, most, tmp_path, monkeypatch):
    monkeypatch.setattr(random_order, "_MOST_ENTRIES", most)
    assert looks_random(dataset(tmp_path / "data", sequences(kind)), "items") == looks


def test_a_direction_counts_where_pairs_are_as_frequent_as_in_any_order(tmp_path):
    rows = [[2 * pair, 2 * pair + 1] for pair in range(20) for _ in range(100)]
    assert not looks_random(dataset(tmp_path / "data", rows, 40), "items")
    either = [row[:: 1 - 2 * (number % 2)] for number, row in enumerate(rows)]
    assert looks_random(dataset(tmp_path / "either", either, 40), "items")


def test_an_order_says_something_that_repeats_pairs_less_than_chance(tmp_path):
    random = np.random.default_rng(7)
    rare = 1 + random.integers(20_000, size=(USERS, 5))
    apart = [[each for item in row for each in (0, item)] for row in rare.tolist()]
    assert not looks_random(dataset(tmp_path / "data", apart, 20_001), "items")


def test_no_more_entries_are_looked_at_than_memory_shall_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(random_order, "_MOST_ENTRIES", 6_400)
    looked, entries = [], Dataset.entries

    def noted(self, field, examples):
        found = entries(self, field, examples)
        looked.append(np.diff(found[1]))
        return found

    monkeypatch.setattr(Dataset, "entries", noted)
    rows = [[item % ITEMS for item in range(50_000)], *sequences("random")]
    looks_random(dataset(tmp_path / "data", rows), "items")
    [lengths] = looked
    assert (set(lengths.tolist()), 3_200 < sum(lengths) <= 6_400) == ({LENGTH}, True)


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 1], [2, 2], [3, 3]],
        [[], [3], [7]],
        [[1, 2, 3], [4, 5]],
        [[item % 20 for item in row] for row in sequences("random", 80)],
        np.random.default_rng(3).integers(2**16, size=(USERS, LENGTH)).tolist(),
    ],
    ids=["pairs of the same", "no pairs", "no repetition", "few users", "pairs that never repeat"],
)
def test_nothing_is_said_where_nobody_can_tell(rows, tmp_path):
    assert not looks_random(dataset(tmp_path / "data", rows, 2**16), "items")


def test_pairs_of_the_widest_field_are_told_apart():
    last = 2**32 - 1
    items = np.array([last, last, 0, 0, last, last, 0], dtype=np.uint32)
    rows = np.array([0, 0, 0, 1, 1, 1, 1])
    pairs = {(last, last): 2, (last, 0): 2, (0, last): 1}  # and none from row 0 to row 1
    expected = math.fsum(count * math.log(count) for count in pairs.values())
    assert random_order._repetition(rows, items, 2**32) == expected


@pytest.mark.parametrize(("kind", "notes"), [("random", [NOTE]), ("with direction", [])])
def test_an_ingest_of_sequences_says_so_at_its_end(kind, notes, tmp_path):
    log = [(f"u{user}", f"i{item}") for user, row in enumerate(sequences(kind)) for item in row]
    said = []
    ingest(log, tmp_path / "data", sequence=True, on_progress=said.append)
    assert [line for line in said if "order" in line] == notes
    assert not notes or said[-1] == NOTE
    said.clear()
    ingest(log, tmp_path / "sets", on_progress=said.append)
    assert NOTE not in said
