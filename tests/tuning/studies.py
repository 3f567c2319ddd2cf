"""A small dataset and a space over it, which the tests of this room search."""

import json
from pathlib import Path

import numpy as np

from widenet.data.lists import dataset_from_lists
from widenet.tuning.results import StudyReport

UNITS, RATE = "network.layers[1].units", "training.optimizer.learning_rate"
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": {"from": [2, 4, 6]}, "activation": "tanh", "dropout": 0.2},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
TRAINING = {
    "epochs": 9,
    "batch_size": 16,
    "shards": 2,
    "schedule": "cosine",
    "evaluation": {"metric": "ndcg@5"},
    "keep": "best",
    "checkpoints": {"min_seconds": 0},
    "optimizer": {"kind": "adam", "learning_rate": {"between": [0.001, 0.3], "log": True}},
}
SPACE = {"network": NETWORK, "training": TRAINING}


def people(path, seed=0, validation=True):
    """A dataset of people who like the items of one of four kinds."""
    random = np.random.default_rng(seed)
    rows = [random.permutation(np.arange(person % 4, 32, 4)).tolist() for person in range(64)]
    held = {"validation": [row[5:] for row in rows]} if validation else {}
    return dataset_from_lists(Path(path), [row[:5] for row in rows], width=32, **held)


class Heard(StudyReport):
    """Keeps what it hears, and calls a function when a trial begins."""

    def __init__(self, at_begin=lambda _trial: None):
        self.begun, self.ended, self.said = [], [], []
        self.at_begin = at_begin

    def begin(self, trial):
        self.begun.append(trial)
        self.at_begin(trial)

    def end(self, trial):
        self.ended.append(trial)

    def say(self, text):
        self.said.append(text)


def with_training(**more):
    """The space with other fields in its training document."""
    return {"network": NETWORK, "training": {**TRAINING, **more}}


def with_layer(**more):
    """The space with other fields in its hidden layer."""
    history, taste, output = NETWORK["layers"]
    return {"network": {"layers": [history, {**taste, **more}, output]}, "training": TRAINING}


def documents(study):
    """The plain values of the best documents of a study."""
    best = Path(study) / "best"
    return [json.loads((best / name).read_text()) for name in ("network.json", "training.json")]
