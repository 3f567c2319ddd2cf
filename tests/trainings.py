"""Small trainings that together hold what a checkpoint must, and their data."""

import json

import numpy as np

from widenet.data.lists import dataset_from_lists
from widenet.runs import Model, Silence

WIDTH, STEPS = 31, 5
HISTORY = {"name": "history", "kind": "input", "field": "items", "denoise": 0.3}
UNTIED = {
    "layers": [
        HISTORY,
        {"name": "taste", "units": 6, "activation": "tanh", "dropout": 0.3},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
WIDER = {"layers": [HISTORY, {**UNTIED["layers"][1], "units": 21}, UNTIED["layers"][2]]}
TIED = {
    "layers": [
        {**HISTORY, "popularity_damping": 0.5},
        {
            "name": "taste",
            "units": 6,
            "activation": "linear",
            "bias": False,
            "initializer": {"kind": "gaussian", "deviation": 0.3},
        },
        {
            "name": "next",
            "kind": "output",
            "field": "items",
            "cosine": {},
            "weights": {"layer": "taste", "transposed": True},
        },
    ]
}


def tied_near(**term):
    """TIED, with a neighbourhood term if its settings are given."""
    *layers, output = TIED["layers"]
    return {"layers": [*layers, {**output, **({"neighbourhood": term} if term else {})}]}


DEEP = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "scale": "rsqrt"},
        {"name": "taste", "units": 6, "activation": "relu", "weight_norm": 2.0},
        {"name": "deep", "units": 5, "activation": "sigmoid", "dropout": 0.2},
        {
            "name": "next",
            "kind": "output",
            "field": "items",
            "activation": "sigmoid",
            "loss": "cross_entropy",
        },
    ]
}
SAMPLED = {
    "layers": [
        HISTORY,
        {"name": "taste", "units": 6, "activation": "tanh"},
        {
            "name": "next",
            "kind": "output",
            "field": "items",
            "sample": {"kind": "popularity", "units": 4},
        },
    ]
}
TIED_SAMPLED = {
    "layers": [*TIED["layers"][:2], {**TIED["layers"][2], "sample": {"kind": "uniform", "units": 3}}]
}
NORMALIZED = {
    "layers": [
        HISTORY,
        {"name": "taste", "units": 6, "activation": "tanh", "batch_normalization": True},
        {
            "name": "deep",
            "units": 6,
            "activation": "tanh",
            "batch_normalization": {"momentum": 0.5},
            "skip": "taste",
        },
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
SPLIT = {
    "layers": [
        HISTORY,
        {"name": "taste", "units": 6, "activation": "tanh"},
        {"name": "deep", "units": 7, "activation": "tanh", "dropout": 0.2, "split": True},
        {"name": "deeper", "units": 2, "activation": "tanh", "weight_norm": 2.0, "split": True},
        {"name": "next", "kind": "output", "field": "items", "source": ["deeper", "deep"]},
    ]
}
EVALUATION = {"metric": "ndcg@5"}
EACH_EPOCH = {"min_seconds": 0}
"""Checkpoints after all epochs, however short."""


def document(optimizer, **more):
    return {
        "epochs": 3,
        "batch_size": 5,
        "shards": 3,
        "optimizer": optimizer,
        "evaluation": EVALUATION,
        "checkpoints": EACH_EPOCH,
        **more,
    }


STANDING = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "denoise": 0.3},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
WEIGHTLESS = {
    "layers": [
        HISTORY,
        {"name": "taste", "units": WIDTH, "activation": "linear", "dropout": 0.3},
        {"name": "next", "kind": "output", "field": "items", "bias": False, "weightless": True},
    ]
}
SETTINGS = {
    "sgd, l2": (UNTIED, document({"kind": "sgd", "learning_rate": 0.3}, l2=0.02)),
    "momentum": (
        UNTIED,
        document({"kind": "momentum", "learning_rate": 0.1}, schedule={"kind": "exponential", "factor": 0.7}),
    ),
    "nesterov": (
        DEEP,
        document({"kind": "nesterov", "learning_rate": 0.1}, gradient_norm_limit=0.5, keep="best"),
    ),
    "rmsprop": (
        UNTIED,
        document({"kind": "rmsprop", "learning_rate": 0.01}, evaluation={**EVALUATION, "every_epochs": 2}),
    ),
    "adadelta": (DEEP, document({"kind": "adadelta"}, evaluation=None)),
    "adam, tied": (
        TIED,
        document({"kind": "adam", "learning_rate": 0.1}, schedule="cosine", warmup_steps=4, keep="best"),
    ),
    "adam, normalized": (NORMALIZED, document({"kind": "adam", "learning_rate": 0.05}, keep="best")),
    "adam, split": (
        SPLIT,
        document({"kind": "adam", "learning_rate": 0.05}, l2=0.02, gradient_norm_limit=0.5, keep="best"),
    ),
    "momentum, sampled": (SAMPLED, document({"kind": "momentum", "learning_rate": 0.1}, schedule="cosine")),
    "rmsprop, sampled": (
        SAMPLED,
        document({"kind": "rmsprop", "learning_rate": 0.01}, gradient_norm_limit=0.5),
    ),
    "sgd, l2, tied, sampled": (TIED_SAMPLED, document({"kind": "sgd", "learning_rate": 0.3}, l2=0.02)),
    "momentum, on the input": (STANDING, document({"kind": "momentum", "learning_rate": 0.1}, l2=0.02)),
    "rmsprop, on the input": (
        STANDING,
        document({"kind": "rmsprop", "learning_rate": 0.01}, gradient_norm_limit=0.5),
    ),
    "adam, weightless": (
        WEIGHTLESS,
        document({"kind": "adam", "learning_rate": 0.05}, gradient_norm_limit=0.5),
    ),
    "adagrad, tied": (
        TIED,
        document({"kind": "adagrad", "learning_rate": 0.1}, checkpoints={**EACH_EPOCH, "every_epochs": 2}),
    ),
    "adagrad by rows": (
        WIDER,
        document({"kind": "adagrad", "per_row": True, "learning_rate": 0.1}, l2=0.02, keep="best"),
    ),
}


def books(path, seed=0, num_examples=23, width=WIDTH, **more):
    """A dataset whose rare items stay untouched for many steps."""
    random = np.random.default_rng(seed)
    likely = 1 / np.arange(1, width + 1)
    rows = [
        random.choice(width, size=random.integers(2, 6), replace=False, p=likely / likely.sum()).tolist()
        for _ in range(num_examples)
    ]
    more.setdefault("titles", [f"Book {index}" for index in range(width)])
    more.setdefault("validation", [row[-1:] for row in rows])
    return dataset_from_lists(path, [row[:-1] for row in rows], width=width, **more)


class Heard(Silence):
    """A report that remembers what it was told."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


class After:
    """Interrupts after some steps."""

    def __init__(self, steps):
        self.left = steps

    def __call__(self):
        self.left -= 1
        return self.left <= 0


def log(run):
    """The lines of a run's log, without the times."""
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def outcome(run):
    """Everything that two trainings of the same bits share."""
    return Model.load(run).fingerprint(), log(run)
