"""Features that occur together, against dense products of int64 matrices and exact fractions."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from widenet.data import together
from widenet.data.lists import dataset_from_lists
from widenet.plan.memory import _PAIR_BYTES

WIDTH = 23
ROWS = [sorted({(row * row + step * (1 + row % 5)) % WIDTH for step in range(row % 9)}) for row in range(60)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together") / "data"
    return dataset_from_lists(folder, ROWS, heldout=[[1, 2]] * len(ROWS), width=WIDTH + 2)


def by_brute_force(units, number):
    """Position, neighbour and similarity of the neighbours; the nearest are found by fractions."""
    matrix = np.zeros((len(ROWS), WIDTH + 2), np.int64)
    for row, features in enumerate(ROWS):
        matrix[row, features] = 1
    both = matrix.T @ matrix
    counts = both.diagonal()
    found = []
    for position, unit in enumerate(unit for unit in units if unit < WIDTH + 2):
        others = [other for other in range(WIDTH + 2) if other != unit and both[unit, other]]
        nearest = sorted(others, key=lambda other: (-Fraction(both[unit, other] ** 2, counts[other]), other))
        found += [
            (position, other, both[unit, other] / (counts[unit] * counts[other]) ** 0.5)
            for other in sorted(nearest[:number])
        ]
    return found


@pytest.mark.parametrize("units", [range(WIDTH + 2), range(1, WIDTH + 6, 3), range(30, 40, 3)])
@pytest.mark.parametrize("number", [1, 4, 100])
@pytest.mark.parametrize("pairs", [1, 40, 2**22])
def test_they_are_those_of_a_dense_product(units, number, pairs, dataset, monkeypatch):
    monkeypatch.setattr(together, "COUNTED_PAIRS", pairs)
    found = together.neighbours(dataset, "items", units, number)
    expected = by_brute_force(units, number)
    assert [*zip(found.positions.tolist(), found.features.tolist(), strict=True)] == [
        (position, feature) for position, feature, _ in expected
    ]
    assert found.similarities.dtype == np.float32
    np.testing.assert_allclose(found.similarities, [value for _, _, value in expected], rtol=1e-7)


def test_each_feature_of_a_sequence_counts_once(dataset, tmp_path):
    again = dataset_from_lists(
        tmp_path / "data", [row + row[1:4] for row in ROWS], width=WIDTH + 2, sequence=True
    )
    found, expected = (together.neighbours(data, "items", range(1, WIDTH, 3), 4) for data in (again, dataset))
    for name in ("positions", "features", "similarities", "counts"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert again.counts("items").sum() > found.counts.sum() == dataset.counts("items").sum()


CLICKS = [[(row * row + step * step * (1 + row % 5)) % 11 for step in range(row % 9)] for row in range(70)]


def near_by_hand(units, number, order):
    """As `by_brute_force`, for `CLICKS` in order: 1 / d, rounded down to a multiple of 2^-20."""
    once = [[one for place, one in enumerate(row) if one not in row[place + 1 :]] for row in CLICKS]
    together_of, counts = {}, {unit: sum(unit in row for row in once) for unit in range(WIDTH)}
    for row in once:
        for place, one in enumerate(row):
            for other_place, other in enumerate(row):
                if other_place < place or (order == "use" and other_place > place):
                    near = Fraction(2**20 // abs(place - other_place), 2**20)
                    together_of[one, other] = together_of.get((one, other), 0) + near
    found = []
    for position, unit in enumerate(units):
        others = [other for other in range(WIDTH) if (unit, other) in together_of]
        closest = sorted(others, key=lambda other: (-(together_of[unit, other] ** 2) / counts[other], other))
        found += [
            (position, other, float(together_of[unit, other]) / (counts[unit] * counts[other]) ** 0.5)
            for other in sorted(closest[:number])
        ]
    return found


def test_counting_takes_the_memory_that_a_plan_says(tmp_path, monkeypatch):
    monkeypatch.setattr(together, "COUNTED_PAIRS", 2**17)
    rows = np.random.default_rng(0).integers(20_000, size=(300, 90)).tolist()
    data = dataset_from_lists(tmp_path / "data", rows, width=20_000, sequence=True)
    units, planned = range(0, 20_000, 20), _PAIR_BYTES * 2**17
    peaks = []
    for order in ("ignore", "use"):
        together.neighbours(data, "items", units, 1000, order)
        tracemalloc.start()
        found = together.neighbours(data, "items", units, 1000, order)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert 0.8 * 2**17 < len(found.features) < 2**17
    assert max(peaks) < planned < 1.3 * max(peaks)


@pytest.mark.parametrize("order", ["use", "forward"])
@pytest.mark.parametrize("number", [3, 100])
@pytest.mark.parametrize("pairs", [1, 40, 2**22])
def test_in_order_pairs_count_by_how_near_they_are(order, number, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(together, "COUNTED_PAIRS", pairs)
    assert any(len(row) > len(set(row)) for row in CLICKS)
    clicks = dataset_from_lists(tmp_path / "data", CLICKS, width=WIDTH, sequence=True)
    for units in (range(WIDTH), range(1, WIDTH, 3)):
        found = together.neighbours(clicks, "items", units, number, order)
        expected = near_by_hand(units, number, order)
        assert [*zip(found.positions.tolist(), found.features.tolist(), strict=True)] == [
            (position, feature) for position, feature, _ in expected
        ]
        np.testing.assert_allclose(found.similarities, [value for _, _, value in expected], rtol=1e-7)
        assert found.counts.tolist() == [sum(unit in row for row in CLICKS) for unit in range(WIDTH)]
