"""What the tests of baselines share: a small dataset whose lists can be computed by brute force."""

import numpy as np
import pytest

from widenet.data.lists import dataset_from_lists

WIDTH = 17


def rows(seed, num_users=40):
    """The items of users, with some of their favourite residue, ascending and distinct."""
    generator = np.random.default_rng(seed)
    return [
        sorted(generator.choice(WIDTH, size=generator.integers(1, 9), replace=False).tolist())
        for _ in range(num_users)
    ]


HISTORY = rows(1)
HELDOUT = [
    [item for item in more if item not in known][:3] for known, more in zip(HISTORY, rows(2), strict=True)
]


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("baselines")
    return dataset_from_lists(folder / "data", HISTORY, heldout=HELDOUT, width=WIDTH)


@pytest.fixture(scope="session")
def matrix():
    """The history as a matrix of 0 and 1, float64 [E, L]."""
    dense = np.zeros((len(HISTORY), WIDTH))
    for user, items in enumerate(HISTORY):
        dense[user, items] = 1
    return dense
