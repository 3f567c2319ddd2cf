"""Small sequences whose next item is known, and networks that go along them."""

import numpy as np

from widenet.data.lists import dataset_from_lists

WIDTH, EXAMPLES = 13, 24
HISTORY = {"name": "history", "kind": "input", "field": "items"}
NEXT = {"name": "out", "kind": "output", "field": "items", "predict": "next"}
EMBEDDED = [
    HISTORY,
    {
        "name": "item",
        "units": 6,
        "activation": "linear",
        "bias": False,
        "initializer": {"kind": "gaussian", "deviation": 0.3},
    },
]
TIED = {**NEXT, "weights": {"layer": "item", "transposed": True}}


def gru(**more):
    return {"name": "state", "kind": "recurrent", "units": 6, **more}


def attention(**more):
    return {"name": "state", "kind": "attention", **more}


SETTINGS = {
    "gru over the items, adam": ([HISTORY, gru(), NEXT], {"optimizer": "adam"}),
    "tied gru, adagrad": (
        [*EMBEDDED, gru(dropout=0.3), TIED],
        {"optimizer": "adagrad", "gradient_norm_limit": 0.4},
    ),
    "two lstms, momentum": (
        [{**HISTORY, "last": 3}, gru(cell="lstm"), gru(name="second", cell="lstm", dropout=0.2), NEXT],
        {"optimizer": {"kind": "momentum", "learning_rate": 0.1}, "l2": 0.01},
    ),
    "embedded lstm over a sample, rmsprop": (
        [*EMBEDDED, gru(cell="lstm"), {**NEXT, "sample": {"kind": "popularity", "units": 4}}],
        {"optimizer": "rmsprop"},
    ),
    "tied gru in bfloat16, sgd": (
        [*EMBEDDED, gru(), TIED],
        {"optimizer": {"kind": "sgd", "learning_rate": 0.3}, "precision": "bfloat16"},
    ),
    "gru with a layer above and a label, adamw": (
        [
            {**HISTORY, "popularity_damping": 0.5},
            gru(bias=False),
            {"name": "above", "units": 5, "activation": "tanh"},
            {**NEXT, "source": ["above", "state"]},
            {"name": "label", "kind": "output", "field": "label", "source": "state", "loss_weight": 0.5},
        ],
        {"optimizer": "adamw"},
    ),
    "split gru and lstm in bfloat16, adam": (
        [*EMBEDDED, gru(split=True), gru(name="second", cell="lstm", split=True, dropout=0.2), TIED],
        {"optimizer": "adam", "gradient_norm_limit": 0.4, "precision": "bfloat16"},
    ),
    "tied attention, adam": (
        [*EMBEDDED, attention(heads=2, dropout=0.3, normalize_output=True), TIED],
        {"optimizer": "adam"},
    ),
    "gru by cosines with neighbours, adam": (
        [*EMBEDDED, gru(), {**TIED, "cosine": {"temperature": 0.3}, "neighbourhood": {"neighbours": 3}}],
        {"optimizer": "adam"},
    ),
    "two attention blocks in bfloat16, adagrad": (
        [
            {**HISTORY, "last": 4},
            EMBEDDED[1],
            attention(name="first", positions="absolute", dropout=0.2),
            attention(positions="none", heads=3, feed_forward=9, activation="gelu", skip="item"),
            TIED,
        ],
        {"optimizer": "adagrad", "gradient_norm_limit": 0.4, "precision": "bfloat16"},
    ),
}


def documents(name):
    """The network and the training of a setting, as plain values."""
    layers, training = SETTINGS[name]
    return {"layers": layers}, {"epochs": 3, "batch_size": 5, "seed": 3, **training}


def following(random, num, width=WIDTH):
    """Two random items and `num` more, each the sum of the two before it and one."""
    row = random.integers(width, size=2).tolist()
    for _ in range(num):
        row.append((row[-1] + row[-2] + 1) % width)
    return row


def write(path, examples=EXAMPLES, longest=7, seed=0, **more):
    """A dataset of such sequences; the last item is held out, the one before is for validation.

    One has none, one a single item.
    """
    random = np.random.default_rng(seed)
    rows = [following(random, int(random.integers(1, longest))) for _ in range(examples)]
    train = [row[:-2] for row in rows]
    train[3] = []
    return dataset_from_lists(
        path,
        train,
        validation=[row[-2:-1] for row in rows],
        heldout=[row[-1:] for row in rows],
        width=WIDTH,
        sequence=True,
        sparse={"label": [[sum(row) % 3] for row in train]},
        **more,
    )
