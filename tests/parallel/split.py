"""Networks of split layers, and what they give."""

import os

import pytest
from torch import distributed

from tests.parallel.matrix import SHARDS, outcome_in
from tests.parallel.workers import exchange
from tests.sequences import EMBEDDED, NEXT, gru
from widenet.data.dataset import Dataset
from widenet.model.storage import Scratch
from widenet.parallel.exchange import Exchange, one_thread_an_operation
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

SPLIT = (
    [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "age", "kind": "input", "field": "age"},
        {"name": "h", "units": 19, "source": ["in", "age"], "activation": "tanh", "split": True},
        {
            "name": "mid",
            "units": 5,
            "source": ["h", "age"],
            "activation": "relu",
            "bias_start": 0.1,
            "dropout": 0.2,
            "weight_norm": 0.9,
            "split": True,
        },
        {
            "name": "even",
            "units": 19,
            "batch_normalization": True,
            "skip": "h",
            "delta_norm": 0.5,
            "split": True,
        },
        {"name": "out", "kind": "output", "field": "items", "source": ["even", "h"]},
    ],
    {"epochs": 1, "batch_size": 6, "shards": SHARDS, "l2": 0.02},
)
"""A network of split layers, one with fewer units than shards, and its training."""

GATES = (
    [
        *EMBEDDED,
        gru(units=7, dropout=0.2, split=True),
        gru(name="second", cell="lstm", source=["state", "item"], skip="state", units=7, split=True),
        gru(name="small", units=2, bias=False, split=True),
        {**NEXT, "source": ["small", "second"]},
    ],
    {"epochs": 1, "batch_size": 6, "shards": SHARDS, "l2": 0.02},
)
"""A network of split recurrent layers, one with fewer rows of gates than shards, and its training."""

DIVIDED = (
    [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "picture", "kind": "input", "field": "picture", "shape": [3, 12, 12]},
        {
            "name": "edges",
            "kind": "convolution",
            "filters": 12,
            "kernel": 3,
            "stride": 2,
            "activation": "relu",
            "split": True,
        },
        {"name": "even", "kind": "pooling", "function": "lrn"},
        {"name": "best", "kind": "pooling", "function": "max", "kernel": 2},
        {
            "name": "parts",
            "kind": "convolution",
            "filters": 12,
            "kernel": 3,
            "activation": "tanh",
            "skip": "best",
        },
        {"name": "normal", "kind": "convolution", "filters": 4, "kernel": 3, "batch_normalization": True},
        {"name": "h", "units": 9, "source": ["normal", "best", "in"], "activation": "tanh", "split": True},
        {"name": "out", "kind": "output", "field": "items"},
    ],
    {"epochs": 1, "batch_size": 20, "shards": SHARDS, "l2": 0.02},
)
"""A network over pictures whose first four layers are divided by examples, and its training."""


SIZES = [
    *((2, slice(1, None, 2)), (3, slice(0, None, 2))),
    *(pytest.param(size, slice(None), marks=pytest.mark.long) for size in (1, 2, 3, 4, 8)),
]
"""Numbers of processes, each with the changes that it trains under: two processes or three under each."""


def outcomes_alone(case, folder, changes):
    """The outcomes of SPLIT, GATES or DIVIDED under each change of its training, in this process."""
    with one_thread_an_operation():
        return _outcomes(case, folder, changes, lambda _: Exchange(SHARDS))


def outcomes_here(case, folder, changes, scratch=None):
    """As `outcomes_alone`, in each process of a group, with one thread or two; with a folder for scratch
    files, wide weights lie in such a file.
    """
    rank = distributed.get_rank()
    file = None if scratch is None else Scratch(scratch)
    found = _outcomes(case, folder, changes, lambda number: exchange(SHARDS, 1 + (rank + number) % 2), file)
    assert file is None or os.fstat(file.cached).st_size > 0
    return found


def _outcomes(case, folder, changes, exchange_of, elsewhere=None):
    layers, training = case
    spec, data = NetworkSpec.of({"layers": layers}), Dataset.open(folder)
    return [
        outcome_in(spec, TrainingSpec.of(training | change), data, exchange_of(number), elsewhere)
        for number, change in enumerate(changes)
    ]
