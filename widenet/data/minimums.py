"""Drops users with many items, then users with few items and items with few users until all have enough."""

import numpy as np

from widenet.data.buckets import Buckets, Rows
from widenet.data.selection import Selection


def large_enough(
    buckets: Buckets, num_buckets: int, users: np.ndarray, items: np.ndarray, selection: Selection
) -> tuple[np.ndarray, np.ndarray]:
    """Find the largest sets of users and items in which each has enough of the other.

    The result does not depend on the order in which users and items are dropped. Each round reads all buckets
    once.

    Args:
        buckets: The rows.
        num_buckets: Number of buckets.
        users: The users to start from, bool [users].
        items: The items to start from, bool [items].
        selection: The minimums.

    Returns:
        The users and items that stay, bool [users] and bool [items].
    """
    users, items = users.copy(), items.copy()
    while selection.min_user_items or selection.min_item_users:
        items_of_user, users_of_item = _counts(buckets, num_buckets, users, items, selection.sequence)
        stay_users, stay_items = (
            items_of_user >= selection.min_user_items,
            users_of_item >= selection.min_item_users,
        )
        if (stay_users >= users).all() and (stay_items >= items).all():
            break
        users &= stay_users
        items &= stay_items
    return users, items


def small_enough(
    buckets: Buckets, num_buckets: int, users: np.ndarray, items: np.ndarray, selection: Selection
) -> tuple[np.ndarray, int]:
    """Find the users who have at most `max_user_items` of some items.

    The arguments are those of `large_enough`.

    Returns:
        The users that stay, bool [users], and the number of rows that the others have of these items.
    """
    if selection.max_user_items is None:
        return users, 0
    items_of_user, _ = _counts(buckets, num_buckets, users, items, selection.sequence)
    is_above = items_of_user > selection.max_user_items
    return users & ~is_above, int(items_of_user[is_above].sum())


def _counts(
    buckets: Buckets, num_buckets: int, users: np.ndarray, items: np.ndarray, is_sequence: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Count the rows of each user and the users of each item, int64 [users] and int64 [items]."""
    items_of_user, users_of_item = np.zeros(len(users), dtype=np.int64), np.zeros(len(items), dtype=np.int64)
    for number in range(num_buckets):
        rows = buckets.rows(number)
        left = rows.of(users[rows.user] & items[rows.item])
        np.add.at(items_of_user, left.user, 1)
        pairs = Rows(np.unique(left.key)) if is_sequence else left
        np.add.at(users_of_item, pairs.item, 1)
    return items_of_user, users_of_item
