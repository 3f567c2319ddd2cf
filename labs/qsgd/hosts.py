"""Steps over two hosts: how much faster a step would be if it sent nothing.

No compression of what hosts exchange can gain more than that.
"""

import json
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.hosts import train_on_hosts
from benchmarks.synthetic import write_histories

EXAMPLES = 20_480


def seconds_of_steps(width: int, units: int, batch_size: int, rates: list[str | None]) -> list[float]:
    """Return the seconds of a training step over two hosts, at each rate of their cable.

    The median of three epochs after the first.
    """
    layers = [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": units, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
    examples = min(EXAMPLES, 20 * batch_size)
    training = {"epochs": 4, "batch_size": batch_size, "optimizer": "momentum"}
    with TemporaryDirectory(prefix="widenet-lab-") as place:
        folder = Path(place)
        write_histories(folder, width, examples, features=30)
        (folder / "network.json").write_text(json.dumps({"layers": layers}))
        (folder / "training.json").write_text(json.dumps(training))
        return [_trained(folder, rate) * batch_size / examples for rate in rates]


def _trained(folder: Path, rate: str | None) -> float:
    out = folder / f"run-{rate}"
    words = ["network.json", "training.json", "--data", "dataset", "--out", str(out), "--device", "cpu"]
    train_on_hosts(words, folder, rate)
    log = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    return statistics.median(float(epoch["seconds"]) for epoch in log[1:])
