"""Trains through Triton's kernels on the simulated device and prints what came of it, in JSON; for a process with TRITON_INTERPRET=1."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulated.cases import CASES, trained, weights_of, with_loss
from tests.simulated.device import simulated
from tests.trainings import SETTINGS, document
from widenet.data.dataset import Dataset
from widenet.parallel import group
from widenet.plan import tiles

NEAR = ("adam, tied", "rmsprop", "cross_entropy", "bfloat16")
ROOMS = [(activation, limit) for activation in ("softmax", "sigmoid") for limit in (None, 0.1)]


def main(data, folder):
    """A line of numbers a setting of NEAR; then a line of fingerprints, with and without room for logits, for each of ROOMS."""
    from widenet.kernels.triton import running_top_k

    running_top_k.LEAST = 2  # a larger sort is interpreted for long
    for name in NEAR:
        with simulated():
            print(json.dumps(weights_of(trained((CASES | SETTINGS)[name], data, folder / name, "cuda", epochs=1))))
    for activation, limit in ROOMS:
        documents = with_loss(activation, "cross_entropy"), document("sgd", evaluation=None, gradient_norm_limit=limit, batch_size=12)
        print(json.dumps([_with_room(documents, data, folder / f"{activation} {limit} {room}", room) for room in (0, 2**30)]))


def _with_room(documents, data, out, room):
    """The fingerprint of an epoch whose output has four tiles a shard, and so much room for logits."""
    with pytest.MonkeyPatch.context() as patch, simulated():
        patch.setitem(tiles.TILE_CELLS, "cuda", 1)
        patch.setattr(tiles, "LEAST_UNITS", 3)
        patch.setattr(group, "with_room", lambda job, _: replace(job, kept_bytes=room))
        return trained(documents, data, out, "cuda", epochs=1).fingerprint()


if __name__ == "__main__":
    main(Dataset.open(Path(sys.argv[1])), Path(sys.argv[2]))
