"""A network of split layers, and what it gives."""

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


def outcome_of_split(folder, exchange, **changes):
    """As `outcome`, of SPLIT under a changed training."""
    layers, training = SPLIT
    spec = TrainingSpec.of(training | changes)
    return outcome_in(NetworkSpec.of({"layers": layers}), spec, Dataset.open(folder / "dense"), exchange)
