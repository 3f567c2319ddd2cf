"""Generated histories with a realistic popularity of items: a few are very popular, most hardly."""

from pathlib import Path

import numpy as np

from widenet import dataset_from_lists

FEATURES = 144
"""Entries of a history in the mean, as in MovieLens 20M."""

_TOP, _DRAWN, _SPREAD = 3.0, 1.35, 0.8


def draw_histories(width: int, examples: int, seed: int = 0, features: int = FEATURES) -> list[np.ndarray]:
    """Ascending items of every example: log-normal lengths about `features`, power-law popularity."""
    draw = np.random.default_rng(seed)
    lengths = draw.lognormal(-(_SPREAD**2) / 2, _SPREAD, examples) * features
    found = []
    for length in lengths:
        wanted = int(np.clip(round(length), 1, width // 4))
        items = np.unique((width * draw.random(int(_DRAWN * wanted) + 8) ** _TOP).astype(np.int64))
        found.append(np.sort(draw.permutation(items)[:wanted]))
    return found


def write_histories(
    folder: Path, width: int, examples: int, features: int = FEATURES, next_item: bool = False
) -> dict[str, int]:
    """The same histories twice: a dataset directory, and CSR arrays for other programs. Gives what they hold.

    next_item: in a second field "next", and as an array, one item an example beside its history.
    """
    rows = draw_histories(width, examples, features=features)
    following = draw_next(width, examples if next_item else 0)
    beside = {"next": [[item] for item in following.tolist()]} if next_item else None
    dataset_from_lists(folder / "dataset", [row.tolist() for row in rows], width=width, sparse=beside)
    np.save(folder / "indptr.npy", np.cumsum([0, *map(len, rows)]).astype(np.int32))
    np.save(folder / "indices.npy", np.concatenate(rows).astype(np.int32))
    np.save(folder / "width.npy", width)
    np.save(folder / "next.npy", following)
    return {
        "examples": examples,
        "width": width,
        "features an example": round(sum(map(len, rows)) / examples),
    }


def draw_next(width: int, examples: int, seed: int = 1) -> np.ndarray:
    """For every example one item, int64, as popular as those of histories.

    The last one has the last item: the field is as wide.
    """
    items = (width * np.random.default_rng(seed).random(examples) ** _TOP).astype(np.int64)
    items[-1:] = width - 1
    return items


def draw_interactions(
    users: range, num_users: int, width: int, interactions: int, seed: int = 0, groups: int = 20
) -> tuple[np.ndarray, np.ndarray]:
    """Exactly so many interactions of a range of users: users and items, int64, ascending, none twice.

    Half of what a user has is popular among all, half among the items of the user's group, a number modulo
    `groups`. Every user has an item, and all ranges together have every item.
    """
    draw = np.random.default_rng([seed, users.start])
    shares = draw.lognormal(-(_SPREAD**2) / 2, _SPREAD, len(users))
    least = np.arange(-(-users.start * width // num_users), -(-users.stop * width // num_users))
    certain = np.sort(least * num_users // width * width + least)
    lengths, found = shares * (interactions / shares.sum()), certain
    assert len(users) + len(certain) <= interactions <= len(users) * width // 4, "too few or too many"
    while len(found) < interactions:
        counts = np.ceil(lengths * _DRAWN).astype(np.int64)
        user = np.repeat(np.asarray(users), counts)
        item = (width * draw.random(len(user)) ** _TOP).astype(np.int64)
        own = item - item % groups + user % groups
        item = np.where((draw.random(len(user)) < 0.5) & (own < width), own, item)
        found = np.sort(np.concatenate([found, user * width + item]))
        found = found[np.diff(found, prepend=-1) > 0]
    is_first = np.diff(found // width, prepend=-1) > 0
    is_first[np.searchsorted(found, certain)] = True
    dropped = draw.permutation(np.flatnonzero(~is_first))[: len(found) - interactions]
    found = np.delete(found, dropped)
    return found // width, found % width
