"""Two hosts, played by network namespaces: how much faster a step would be if it sent nothing.

No compression of what hosts exchange can gain more than that. Needs root, `ip` and `tc`.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.synthetic import write_histories

ADDRESSES, PORT = ("10.231.9.1", "10.231.9.2"), "29541"
EXAMPLES = 20_480


@contextmanager
def hosts(rate: str | None) -> Iterator[list[str]]:
    """Make two network namespaces with a cable between them, of a limited rate, such as "1gbit".

    Raises:
        OSError: `ip` or `tc` is missing.
        subprocess.CalledProcessError: They may not do this here.
    """
    names = [f"widenet-lab-{os.getpid()}-{host}" for host in (0, 1)]
    try:
        for name in names:
            _do("ip", "netns", "add", name)
        ends = ["link", "add", "cable0", "netns", names[0], "type", "veth", "peer", "name", "cable1"]
        _do("ip", *ends, "netns", names[1])
        for host, name in enumerate(names):
            _do("ip", "-n", name, "address", "add", f"{ADDRESSES[host]}/24", "dev", f"cable{host}")
            for link in ("lo", f"cable{host}"):
                _do("ip", "-n", name, "link", "set", link, "up")
            if rate is not None:
                limit = ["root", "tbf", "rate", rate, "burst", "1mb", "latency", "50ms"]
                _do("tc", "-n", name, "qdisc", "add", "dev", f"cable{host}", *limit)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


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
    words = [
        "train",
        "network.json",
        "training.json",
        "--data",
        "dataset",
        "--out",
        str(out),
        "--device",
        "cpu",
    ]
    with hosts(rate) as names:
        running = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, "-m", "widenet", *words],
                cwd=folder,
                env=os.environ | _environment(host),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            for host, name in enumerate(names)
        ]
        said = [process.communicate()[1].decode() for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("\n".join(said))
    log = [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]
    return statistics.median(float(epoch["seconds"]) for epoch in log[1:])


def _environment(host: int) -> dict[str, str]:
    return {
        "RANK": str(host),
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": ADDRESSES[0],
        "MASTER_PORT": PORT,
        "GLOO_SOCKET_IFNAME": f"cable{host}",
        "WIDENET_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
