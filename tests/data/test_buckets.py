"""Rows in buckets: merged as plain dictionaries merge them, however they are divided."""

import numpy as np
import pytest

from widenet.data.buckets import Rows, ascending


def key_of(users, items):
    return np.asarray(users, np.uint64) << np.uint64(32) | np.asarray(items, np.uint64)


@pytest.fixture
def rows():
    draw = np.random.default_rng(4)
    values, times = draw.choice([-0.0, 0.0, 1.5, -2.0], size=3000), draw.choice([3.0, 7.0, np.inf], size=3000)
    return Rows(key_of(draw.integers(0, 9, 3000) + 2**31, draw.integers(0, 40, 3000) * 10**8), values, times)


def best_of(rows):
    """{key: (time, value, minus one for a negative value)} by a dictionary."""
    times = np.zeros(len(rows.key)) if rows.time is None else rows.time
    best = {}
    for key, time, value in zip(rows.key.tolist(), times.tolist(), rows.value.tolist(), strict=True):
        best[key] = max(best.get(key, (-np.inf,) * 3), (time, value, 0 - np.signbit(value)))
    return best


@pytest.mark.parametrize("timed", [True, False])
def test_the_last_row_of_a_pair_counts_and_of_these_the_largest_value(rows, timed):
    rows = rows if timed else Rows(rows.key, rows.value)
    merged, best = rows.merged("last"), best_of(rows)
    assert merged.key.tolist() == sorted(best)
    assert merged.value.tolist() == [best[key][1] for key in sorted(best)]
    assert np.signbit(merged.value).tolist() == [bool(best[key][2] < 0) for key in sorted(best)]


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("valued", [True, False])
@pytest.mark.parametrize("duplicates", ["first", "max", "sum"])
def test_of_repeated_rows_the_first_the_largest_or_the_sum_counts(rows, timed, valued, duplicates):
    rows = Rows(rows.key, rows.value if valued else None, rows.time if timed else None)
    groups = {}
    times = rows.time if timed else np.zeros(len(rows.key))
    values = rows.value if valued else np.ones(len(rows.key))
    for key, time, value in zip(rows.key.tolist(), times.tolist(), values.tolist(), strict=True):
        groups.setdefault(key, []).append((time, value))
    merged = rows.merged(duplicates)
    assert merged.key.tolist() == sorted(groups)
    for place, key in enumerate(sorted(groups)):
        first = min(time for time, _ in groups[key])
        wanted = {
            "first": max(value for time, value in groups[key] if time == first),
            "max": max(value for _, value in groups[key]),
            "sum": sum(value for _, value in groups[key]),
        }[duplicates]
        assert (1.0 if merged.value is None else merged.value[place]) == wanted
        if timed and duplicates == "sum":
            assert merged.time[place] == max(time for time, _ in groups[key])
    assert (merged.value is None) == (not valued and duplicates != "sum")


def test_keys_ascend_and_equal_ones_stay_as_they_were(rows):
    for key in (rows.key, rows.key >> np.uint64(20), rows.key % np.uint64(7), rows.key[:0]):
        assert ascending(key).tolist() == np.argsort(key, kind="stable").tolist()
