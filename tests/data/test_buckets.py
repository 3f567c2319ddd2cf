"""Rows in buckets: merged as plain dictionaries merge them, however they are divided."""

import threading

import numpy as np
import pyarrow as pa
import pytest

from widenet.data.buckets import Buckets, Rows, ascending, entries, in_order, merge
from widenet.data.selection import Selection


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


def test_rows_are_found_in_their_bucket_however_they_arrive(tmp_path):
    buckets = Buckets(tmp_path / "rows")
    columns = [
        pa.array([2, 0, 2, 0], pa.uint16()),
        pa.array([9, 1, 8, 2], pa.uint64()),
        pa.array([1.0, 2.0, 3.0, 4.0]),
    ]
    batch = pa.RecordBatch.from_arrays(columns, ["bucket", "key", "value"])
    assert buckets.add([batch.slice(0, 1), batch.slice(1)]) == 4
    assert [buckets.rows(number).key.tolist() for number in range(3)] == [[1, 2], [], [9, 8]]
    assert buckets.rows(2).value.tolist() == [1.0, 3.0]


def test_a_pair_stays_in_the_first_part_that_has_it_where_its_value_suffices(tmp_path):
    parts = {"train": Buckets(tmp_path / "train"), "heldout": Buckets(tmp_path / "heldout")}
    parts["train"].replace(0, Rows(key_of([1, 1, 2, 3], [4, 4, 4, 4]), np.array([1.0, 5.0, 2.0, 4.0])))
    parts["heldout"].replace(0, Rows(key_of([1, 2, 3], [4, 4, 5]), np.array([9.0, 9.0, 3.0])))
    found = merge(parts, 0, Selection(min_value=4.0))
    assert {part: (each.num_repeated, each.num_below, each.num_taken) for part, each in found.items()} == {
        "train": (1, 1, 0),
        "heldout": (0, 1, 1),
    }
    assert parts["train"].rows(0).key.tolist() == key_of([1, 3], [4, 4]).tolist()
    assert parts["heldout"].rows(0).key.tolist() == key_of([2], [4]).tolist()
    assert (found["train"].users.tolist(), found["train"].items.tolist()) == ([1, 3], [4, 4])


def test_entries_ascend_by_example_and_feature():
    rows = Rows(key_of([0, 0, 2], [1, 2, 0]), np.array([1.0, 2.0, 3.0]))
    batch = entries(rows, np.array([0, -1, 1]), np.array([7, 5, 3], np.uint32))
    assert batch.to_pydict() == {"example": [0, 0, 1], "feature": [3, 5, 7], "value": [2.0, 1.0, 3.0]}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_work_is_given_in_the_order_of_its_tasks_and_only_so_much_waits(threads):
    begun, second_begun = [], threading.Event()

    def work(task):
        begun.append(task)
        if task == 1:
            second_begun.set()
        if task == 0 and threads > 1:
            second_begun.wait()
        return task * 10

    for taken, done in enumerate(in_order(work, range(9), threads)):
        assert done == taken * 10
        assert len(begun) <= taken + threads
    assert sorted(begun) == list(range(9))
