"""Trains with and without a CUDA graph on the simulated device, and prints whether both agree; for a
process with TRITON_INTERPRET=1.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.simulated import graphs
from tests.simulated.cases import trained
from tests.simulated.device import simulated
from widenet.data.lists import dataset_from_lists
from widenet.model import packing

HISTORY, OUTPUT = (
    {"name": "history", "kind": "input", "field": "items"},
    {
        "name": "next",
        "kind": "output",
        "field": "items",
    },
)
TASTE = {"name": "taste", "units": 3}
SOFTMAX = {"layers": [HISTORY, TASTE, OUTPUT]}
SIGMOID = {
    "layers": [
        {**HISTORY, "denoise": 0.3},
        TASTE,
        {**OUTPUT, "activation": "sigmoid", "bias": False, "predict": "hidden"},
    ]
}
TWO_INPUTS = {
    "layers": [
        {**HISTORY, "denoise": 0.3, "denoise_rescale": True},
        {**HISTORY, "name": "likes", "popularity_damping": 0.5},
        {"name": "age", "kind": "input", "field": "age"},
        {**TASTE, "source": ["history", "likes", "age"], "activation": "tanh"},
        {"name": "deep", "units": 4, "activation": "relu", "batch_normalization": True, "weight_norm": 2.0},
        {**OUTPUT, "weight_norm": 1.0, "bias_l2": 0.1},
        {**OUTPUT, "name": "also", "source": "taste", "activation": "tanh", "loss": "hinge", "cosine": {}},
    ]
}


def weighted(rows):
    """Values of features, what examples count, and a dense field."""
    numbers = [0.5 + e % 3 for e in range(len(rows))]
    values = [[number + i for i in range(len(row))] for number, row in zip(numbers, rows, strict=True)]
    return {"values": values, "weights": numbers, "dense": {"age": [[number, 1.0] for number in numbers]}}


def document(optimizer, **more):
    return {"batch_size": 3, "shards": 2, "optimizer": optimizer, **more}


CASES = {
    "sigmoid, adam": (SIGMOID, document("adam", schedule="cosine", warmup_steps=2)),
    "softmax, rmsprop": (SOFTMAX, document("rmsprop", l2=0.01, l1=0.001)),
    "two inputs, adamw, bfloat16": (TWO_INPUTS, document("adamw", precision="bfloat16")),
    "softmax, adadelta": (SOFTMAX, document("adadelta", shards=10)),
    "softmax, adagrad": (SOFTMAX, document("adagrad")),
    "outgrown": (SOFTMAX, document("sgd", shuffle=False)),
    "resumed": (SIGMOID, document("adam", schedule="cosine")),
}
SIZES = {"outgrown": [1, 1, 1, 1, 2, 1, 7, 8, 6, 2], "resumed": [2, 1, 3, 1, 2, 4, 3, 2, 3, 1, 3]}
"""How many features each example has, in cases that need it so."""
PLACES = ("training/cuda_graph", "model/packing")


def main(folder):
    """A line a case: its name, whether a training with replayed steps is an eager one's equal, its
    replays, graphs, and waits.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_LEAST", 8)  # every row of a capacity is interpreted
        for name, documents in CASES.items():
            sizes = SIZES.get(name, [1, 2, 3, 4, 1, 2, 3, 4])
            rows = [
                sorted({(7 * e + 3 * i * i + i) % 9 for i in range(size)}) for e, size in enumerate(sizes)
            ]
            more = weighted(rows) if documents[0] is TWO_INPUTS else {}
            data = dataset_from_lists(folder / f"{name}, data", rows, width=9, **more)
            eager = _outcome(documents, data, folder / f"{name}, eager")
            if name == "resumed":
                with pytest.raises(KeyboardInterrupt):
                    _outcome(
                        documents,
                        data,
                        folder / name,
                        cuda_graph=True,
                        interrupted=iter([False, False, True]).__next__,
                    )
            recorded = _outcome(documents, data, folder / name, cuda_graph=True, resume=name == "resumed")
            print(json.dumps([name, eager[:2] == recorded[:2], *recorded[2:]]), flush=True)


def _outcome(documents, data, out, **more):
    """Fingerprint and losses of a training, replays, graphs that were replayed, and how often the host
    waited for one of them.
    """
    with simulated() as waits:
        model = trained(documents, data, out, "cuda", **more)
        losses = [record["loss"] for record in model.run.records()]
        waited = sum(number for (_, place), number in waits.items() if place.startswith(PLACES))
        return model.fingerprint(), losses, len(graphs.replayed), len(set(map(id, graphs.replayed))), waited


if __name__ == "__main__":
    main(Path(sys.argv[1]))
