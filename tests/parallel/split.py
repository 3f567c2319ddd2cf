"""Networks of split layers, and what they give."""

from tests.parallel.matrix import SHARDS, outcome_in
from widenet.data.dataset import Dataset
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


DIVIDED = (
    [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "picture", "kind": "input", "field": "picture", "shape": [3, 12, 12]},
        {
            "name": "edges",
            "kind": "convolution",
            "filters": 5,
            "kernel": 3,
            "stride": 2,
            "activation": "relu",
            "weight_norm": 0.9,
            "split": True,
        },
        {"name": "even", "kind": "pooling", "function": "lrn"},
        {"name": "best", "kind": "pooling", "function": "max", "kernel": 2},
        {
            "name": "parts",
            "kind": "convolution",
            "filters": 5,
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


def outcome_of_split(folder, exchange, layers, training):
    """As `outcome`, of SPLIT or DIVIDED under a training."""
    network = NetworkSpec.of({"layers": layers})
    return outcome_in(network, TrainingSpec.of(training), Dataset.open(folder), exchange)
