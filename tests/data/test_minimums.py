"""Minimums: the sets that stay are the largest ones, by hand."""

import numpy as np

from widenet.data.buckets import Buckets, Rows
from widenet.data.minimums import large_enough
from widenet.data.selection import Selection


def test_what_goes_takes_others_with_it(tmp_path):
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]
    buckets = Buckets(tmp_path / "rows")
    key = np.array([user << 32 | item for user, item in pairs], np.uint64)
    buckets.replace(0, Rows(key[:4]))
    buckets.replace(1, Rows(key[4:]))
    users, items = large_enough(buckets, 2, 4, 4, Selection(min_user_items=2, min_item_users=2))
    assert (users.tolist(), items.tolist()) == ([True, True, False, False], [True, True, False, False])
    users, items = large_enough(buckets, 2, 4, 4, Selection())
    assert users.all()
    assert items.all()


def test_of_sequences_rows_count_for_users_and_users_for_items(tmp_path):
    buckets = Buckets(tmp_path / "rows")
    buckets.replace(0, Rows(np.array([user << 32 | item for user, item in [(0, 0), (0, 0), (0, 0), (1, 1), (1, 2), (2, 1)]], np.uint64)))
    users, _ = large_enough(buckets, 1, 3, 3, Selection(min_user_items=2, sequence=True))
    assert users.tolist() == [True, True, False]
    _, items = large_enough(buckets, 1, 3, 3, Selection(min_item_users=2, sequence=True))
    assert items.tolist() == [False, True, False]
