"""A small dataset with described items, of which the last ones have no interactions."""

import numpy as np
import pytest

from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.runs import train

USERS, ITEMS, COLD = 60, 24, 6
BY = ["genre", "price"]


def columns_of(pairs):
    """The columns of pairs of a user and an item."""
    users, items = zip(*pairs, strict=True)
    return {"user": users, "item": items}


def described(folder, genres=("poem", "novel", "play"), normalize=True, cold=COLD) -> Dataset:
    """Everybody likes one of three genres; a tenth of the rest, and all that is cold, is held out."""
    random = np.random.default_rng(2)
    train, heldout = [], []
    for user in range(USERS):
        for item in random.permutation([item for item in range(ITEMS) if item % 3 == user % 3])[:6]:
            is_held = item >= ITEMS - cold or random.random() < 0.1
            (heldout if is_held else train).append((f"u{user}", f"i{item}"))
    catalogue = {
        "id": [f"i{item}" for item in range(ITEMS)],
        "title": [f"Item {item}" for item in range(ITEMS)],
        "genre": [genres[item % 3] for item in range(ITEMS)],
        "price": [float(item % 5) for item in range(ITEMS)],
    }
    return ingest(
        columns_of(train),
        folder,
        heldout=columns_of(heldout),
        items=catalogue,
        items_sparse={"genre": "genre"},
        items_dense={"price": ["price"]},
        normalize=normalize,
    )


def network(tied=True):
    """A network whose items are described."""
    taste = {"name": "taste", "units": 6, "activation": "linear", "bias": False, "described_by": BY}
    share = {"weights": {"layer": "taste", "transposed": True}} if tied else {"described_by": BY}
    return {
        "layers": [
            {"name": "history", "kind": "input", "field": "items", "denoise": 0.3},
            taste,
            {"name": "next", "kind": "output", "field": "items", **share},
        ]
    }


TRAINING = {
    "epochs": 4,
    "batch_size": 16,
    "shards": 4,
    "optimizer": {"kind": "adam", "learning_rate": 0.05},
    "evaluation": None,
}

INTERRUPTED = TRAINING | {"checkpoints": {"every_steps": 2}}


def interrupt(document, data, out):
    """Train until the seventh step."""
    steps = iter(range(1, 8))
    with pytest.raises(KeyboardInterrupt):
        train(document, INTERRUPTED, data, out, interrupted=lambda: next(steps) == 7)
