"""Trainings of known bits: all kinds of layers, losses and optimizers in portable bits, in one process
that prints their fingerprints.
"""

import json
import sys
from pathlib import Path

import torch

from tests import sequences
from tests.parallel.matrix import DEEP, PICTURES, write_data
from tests.trainings import SETTINGS, UNTIED, books, document
from widenet.kernels.native import choose_bits
from widenet.runs import train


def trainings(folder):
    """Name, network, training and dataset of each."""
    data = books(folder / "books").path
    for name, (network, training) in SETTINGS.items():
        yield name, network, {**training, "epochs": 1}, data
    yield "adamw, bfloat16", UNTIED, document("adamw", precision="bfloat16", epochs=1), data
    following = sequences.write(folder / "following").path
    for name in sequences.SETTINGS:
        network, training = sequences.documents(name)
        yield name, network, {**training, "epochs": 1}, following
    blocked = write_data(folder)
    for name, (layers, training) in {"deep": DEEP, "pictures": PICTURES}.items():
        for precision in ("float32", "bfloat16"):
            yield (
                f"{name}, {precision}",
                {"layers": layers},
                {**training, "precision": precision},
                blocked / name,
            )


def main(folder):
    """Print the fingerprints by name."""
    choose_bits("portable", torch.device("cpu"))
    found = {
        name: (
            train(
                network, {**training, "bits": "portable"}, data, folder / "runs" / str(number)
            ).fingerprint()[:16]
        )
        for number, (name, network, training, data) in enumerate(trainings(folder))
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
