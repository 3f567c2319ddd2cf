"""Leaving out users of few items and items of few users, until every one that is left has enough."""

import numpy as np

from widenet.data.buckets import Buckets, Rows
from widenet.data.selection import Selection


def large_enough(
    buckets: Buckets, num_buckets: int, users: np.ndarray, items: np.ndarray, selection: Selection
) -> tuple[np.ndarray, np.ndarray]:
    """The users and the items that stay, bool [users] and [items]: of those given the largest sets in which
    each has enough of the other.

    The sets do not depend on the order in which others go. Costs a pass over the buckets for each round.
    """
    users, items = users.copy(), items.copy()
    while selection.has_minimums:
        items_of_user, users_of_item = (
            np.zeros(len(users), dtype=np.int64),
            np.zeros(len(items), dtype=np.int64),
        )
        for number in range(num_buckets):
            rows = buckets.rows(number)
            left = rows.of(users[rows.user] & items[rows.item])
            np.add.at(items_of_user, left.user, 1)
            pairs = Rows(np.unique(left.key)) if selection.sequence else left
            np.add.at(users_of_item, pairs.item, 1)
        stay_users, stay_items = (
            items_of_user >= selection.min_user_items,
            users_of_item >= selection.min_item_users,
        )
        if (stay_users >= users).all() and (stay_items >= items).all():
            break
        users &= stay_users
        items &= stay_items
    return users, items
