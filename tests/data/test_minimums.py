"""Minimums: the sets that stay are the largest ones, by hand."""

import numpy as np

from widenet.data.buckets import Buckets, Rows
from widenet.data.merging import large_enough, small_enough
from widenet.data.selection import Selection


def test_what_goes_takes_others_with_it(tmp_path):
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]
    buckets = Buckets(tmp_path / "rows")
    key = np.array([user << 32 | item for user, item in pairs], np.uint64)
    buckets.replace(0, Rows(key[:4]))
    buckets.replace(1, Rows(key[4:]))
    every = np.ones(4, dtype=bool)
    users, items = large_enough(buckets, 2, every, every, Selection(min_user_items=2, min_item_users=2))
    assert (users.tolist(), items.tolist()) == ([True, True, False, False], [True, True, False, False])
    users, items = large_enough(buckets, 2, every, every, Selection())
    assert users.all()
    assert items.all()


def test_of_sequences_rows_count_for_users_and_users_for_items(tmp_path):
    buckets = Buckets(tmp_path / "rows")
    buckets.replace(
        0,
        Rows(
            np.array(
                [user << 32 | item for user, item in [(0, 0), (0, 0), (0, 0), (1, 1), (1, 2), (2, 1)]],
                np.uint64,
            )
        ),
    )
    given = np.ones(3, dtype=bool), np.ones(3, dtype=bool)
    users, _ = large_enough(buckets, 1, *given, Selection(min_user_items=2, sequence=True))
    assert users.tolist() == [True, True, False]
    _, items = large_enough(buckets, 1, *given, Selection(min_item_users=2, sequence=True))
    assert items.tolist() == [False, True, False]


def test_users_with_too_many_of_the_given_items_go_first(tmp_path):
    buckets = Buckets(tmp_path / "rows")
    pairs = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 3), (2, 2)]
    buckets.replace(0, Rows(np.array([user << 32 | item for user, item in pairs], np.uint64)))
    users, items = np.ones(3, dtype=bool), np.array([True, True, True, False])
    most_two = Selection(max_user_items=2, min_item_users=2)
    stay, num_rows = small_enough(buckets, 1, users, items, most_two)
    assert (stay.tolist(), num_rows) == ([False, True, True], 3)
    stay, num_rows = small_enough(buckets, 1, users, items, Selection())
    assert (stay.tolist(), num_rows) == ([True] * 3, 0)


def test_what_is_not_given_does_not_count(tmp_path):
    buckets = Buckets(tmp_path / "rows")
    buckets.replace(
        0, Rows(np.array([user << 32 | item for user, item in [(0, 0), (0, 1), (1, 0), (1, 2)]], np.uint64))
    )
    users, items = large_enough(
        buckets, 1, np.ones(2, dtype=bool), np.array([True, True, False]), Selection(min_user_items=2)
    )
    assert (users.tolist(), items.tolist()) == ([True, False], [True, True, False])
