"""Trains through Triton's kernels on the simulated device and prints what came of it, in JSON; for a
process with TRITON_INTERPRET=1.
"""

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulated.cases import CASES, trained, weights_of, with_loss
from tests.simulated.device import launches, simulated, waits
from tests.simulated.streams import DEFAULT
from tests.trainings import SAMPLED, SETTINGS, UNTIED, document
from widenet.data.dataset import Dataset
from widenet.model import triton_step
from widenet.parallel import group
from widenet.plan import tiles
from widenet.training import loop

NEAR = {name: (CASES | SETTINGS)[name] for name in ("adam, tied", "rmsprop", "cross_entropy", "bfloat16")}
network, training = NEAR["rmsprop"]
NEAR["rmsprop"] = (
    network,
    {**training, "evaluation": None},
)  # one ranking is enough: it is interpreted for long
ROOMS = [("softmax", 0.1, "float32"), ("sigmoid", None, "bfloat16"), ("softmax", None, "tf32")]

WAITS = {"dropout": UNTIED, "sample": SAMPLED}
TOGETHER = {
    "softmax": ({}, {}),
    "softmax by cosine, without room": ({"cosine": {"temperature": 0.5}}, {"optimizer": "momentum"}),
    "softmax at the end": (
        {},
        {"gradient_norm_limit": 0.1, "optimizer": {"kind": "adagrad", "per_row": True}},
    ),
    "sigmoid": ({"weight_norm": 0.5}, {"precision": "bfloat16"}),
}
TILES = "float32", "bfloat16"
HIDDEN = [{"name": name, "units": 5, "activation": "sigmoid"} for name in "abc"]
DSSTNE = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        *HIDDEN,
        {"name": "next", "kind": "output", "field": "items", "activation": "sigmoid"},
    ]
}
"""DSSTNE's benchmark, with fewer units."""


def main(data, folder):
    """Lines of what came of NEAR, ROOMS, WAITS, TOGETHER, TILES and DSSTNE.

    Numbers of a setting of NEAR; fingerprints with and without room for logits, and with weights in the
    host's memory, of one of ROOMS; for one of WAITS the places where a second step waited for the device; for
    TOGETHER the fingerprints with 1, 2, 4 and 8 shards in a launch; for TILES how much more is launched for a
    further tile of eight shards, and for DSSTNE's network how much in a step.
    """
    from widenet.kernels.triton import running_top_k

    running_top_k.LEAST = 2  # a larger sort is interpreted for long
    for name, documents in NEAR.items():
        with simulated():
            print(json.dumps(weights_of(trained(documents, data, folder / name, "cuda", epochs=1))))
    for activation, limit, precision in ROOMS:
        training = {
            "evaluation": None,
            "batch_size": 12,
            "precision": precision,
            "gradient_norm_limit": limit,
        }
        documents = with_loss(activation, "cross_entropy"), document("momentum", **training)
        found = [
            _with_room(documents, data, folder / f"{activation} {limit} {room} {place}", room, place)
            for room, place in ((0, "device"), (2**30, "device"), (0, "host"))
        ]
        print(json.dumps(found))
    for name, network in WAITS.items():
        print(json.dumps(_waits(network, data, folder / name)))
    print(json.dumps([_together(name, data, folder / name) for name in TOGETHER]))
    launched = [_of_a_tile(precision, data, folder / f"{precision} tiles") for precision in TILES]
    more = {"optimizer": "rmsprop", "shards": 8, "batch_size": 6}
    steps = _counted(launches, DSSTNE, data, folder / "DSSTNE", more)
    print(json.dumps([*launched, sum(steps[2].values())]))


def _together(name, data, folder):
    """Fingerprints with 1, 2, 4 and 8 shards in a launch, of three tiles a shard."""
    output, training = TOGETHER[name]
    network = with_loss("softmax" if "softmax" in name else "sigmoid", "cross_entropy", **output)
    own = network, document("adam", evaluation=None, batch_size=12) | {"shards": 8} | training
    room = 2**20 * ("room" not in name)
    numbers = (1, 2, 4, 8)
    return [_with_room(own, data, folder / str(number), room, "device", number) for number in numbers]


def _waits(network, data, out):
    """Where the host waits, in the last step of a training, for the stream that trains."""
    steps = _counted(waits, network, data, out, {})
    return {place: number for (_, place), number in steps[-1].items()}


def _of_a_tile(precision, data, folder):
    """How much more a step launches whose shards have two tiles instead of one."""
    network, more, found = with_loss("softmax", "cross_entropy"), {"precision": precision, "shards": 8}, []
    for units in (9, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(tiles.TILE_CELLS, "cuda", 1)
            patch.setattr(tiles, "LEAST_UNITS", units)
            steps = _counted(launches, network, data, folder / str(units), more)
        found.append(sum(steps[-1].values()))
    return found[1] - found[0]


def _counted(counter, network, data, out, more):
    """What a counter counts in each step of a training for the stream that trains; the last one has norms."""
    steps = []
    with pytest.MonkeyPatch.context() as patch, simulated():

        def counted(*arguments, step=loop.train_step):
            before = Counter(counter)
            loss = step(*arguments)
            steps.append({key: own for key, own in (counter - before).items() if key[0] == DEFAULT})
            return loss

        patch.setattr(loop, "train_step", counted)
        training = document("adam", evaluation=None, batch_size=12) | more
        trained((network, training), data, out, "cuda")
    return steps


def _with_room(documents, data, out, room, place, together=1):
    """The fingerprint of an epoch whose output has two to four tiles a shard, and so much room for logits.

    With the host, shards are computed one by one.
    """
    with pytest.MonkeyPatch.context() as patch, simulated():
        patch.setitem(tiles.TILE_CELLS, "cuda", 1)
        patch.setattr(tiles, "LEAST_UNITS", 3)
        patch.setattr(triton_step, "SHARDS_AT_ONCE", together)
        patch.setattr(group, "with_room", lambda job, _: replace(job, kept_bytes=room))
        return trained(documents, data, out, "cuda", epochs=1, weights_in=place).fingerprint()


if __name__ == "__main__":
    main(Dataset.open(Path(sys.argv[1])), Path(sys.argv[2]))
