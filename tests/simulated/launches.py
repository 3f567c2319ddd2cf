"""Counts what a training step and the preparation of a batch launch on the simulated device, and how often
the host waits; for a process with TRITON_INTERPRET=1.

The numbers depend on the shards, the layers and the tiles of a shard, and on no size.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.simulated.cases import trained
from tests.simulated.device import launches, simulated, waits
from widenet.data.lists import dataset_from_lists
from widenet.plan import tiles
from widenet.training import loop

WIDTH, BATCH = 128, 6


@dataclass(frozen=True)
class Case:
    """A network between the same wide input and output, in eight shards; `most`: launches of its step."""

    activation: str
    hidden: int
    tiles_a_shard: int
    most: int
    precision: str = "float32"


CASES = {
    "a: three hidden layers, sigmoid": Case("sigmoid", 3, 1, most=164),
    "d: one hidden layer, softmax in 8 tiles a shard": Case("softmax", 1, 8, most=1496),
    "a in bfloat16": Case("sigmoid", 3, 1, most=61, precision="bfloat16"),
    "d in bfloat16": Case("softmax", 1, 8, most=180, precision="bfloat16"),
}


def main(folder, names):
    """Print a line a case: its name, then launches and waits of a batch and of its step."""
    rows = [sorted({(7 * e + 3 * i * i) % WIDTH for i in range(1 + e % 4)}) for e in range(BATCH)]
    data = dataset_from_lists(folder / "data", rows, width=WIDTH)
    for name in names:
        found = counted(CASES[name], data, folder / name.replace(" ", "-").replace(":", ""))
        print(json.dumps([name, *(counts.total() for counts in found)]), flush=True)
        if "--places" in sys.argv:
            for counts in found:
                for place, number in sorted(counts.items(), key=lambda item: -item[1]):
                    print(f"  {number:5} {' '.join(place)}")


def counted(case, data, out):
    """Launches of the batch, its waits, launches of its step, its waits."""
    hidden = [{"name": f"hidden {number}", "units": 4} for number in range(case.hidden)]
    output = {"name": "next", "kind": "output", "field": "items", "activation": case.activation}
    network = {"layers": [{"name": "in", "kind": "input", "field": "items"}, *hidden, output]}
    training = {
        "batch_size": BATCH,
        "optimizer": "rmsprop",
        "epochs": 1,
        "precision": case.precision,
        "histograms": False,
    }
    batches, steps = [], []

    def counting(work, found):
        def counted_work(*arguments):
            before = Counter(launches), Counter(waits)
            result = work(*arguments)
            found.append([now - then for now, then in zip((launches, waits), before, strict=True)])
            return result

        return counted_work

    with pytest.MonkeyPatch.context() as patch, simulated():
        patch.setattr(loop, "train_step", counting(loop.train_step, steps))
        patch.setattr(loop.Training, "_ready", counting(loop.Training._ready, batches))
        patch.setattr(loop, "ahead", lambda make, numbers: (make(number) for number in numbers))
        patch.setitem(tiles.TILE_CELLS, "cuda", BATCH * WIDTH // 8 // case.tiles_a_shard)
        patch.setattr(tiles, "LEAST_UNITS", 1)
        trained((network, training), data, out, "cuda", epochs=1)
    return [*batches[-1], *steps[-1]]


if __name__ == "__main__":
    chosen = [word for word in sys.argv[2:] if word != "--places"]
    main(Path(sys.argv[1]), chosen or CASES)
