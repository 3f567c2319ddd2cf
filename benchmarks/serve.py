"""Loads a service over loopback with wrk: rates, latencies, refusals beyond its capacity, and swaps.

Beside it, the rate at which the same model recommends in batches without a service. Needs wrk, a program of
Debian, and the extra `serve`.
"""

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, sleep

import numpy as np

from benchmarks.places import workplace
from widenet import dataset_from_lists, train

ITEMS, USERS, HISTORY, K = 41_000, 4_096, 20, 20
UNITS = (64, 512)
CONNECTIONS, SECONDS, SWAPS = 64, 20, 100
TIMES_CAPACITY = 3
_SCRIPT = """
local bodies = {}
for line in io.lines("%s") do bodies[#bodies + 1] = line end
local next = 0
request = function()
  next = next %% #bodies + 1
  return wrk.format("POST", "/v1/recommend", {["Content-Type"] = "application/json"}, bodies[next])
end
done = function(summary, latency)
  io.write(string.format("found %%d %%d %%d %%f %%f\\n", summary.requests, summary.errors.status,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


@dataclass
class Load:
    """What wrk measured.

    Attributes:
        rate: Answers a second.
        refused: Answers other than 200.
        broken: Connections that failed or timed out.
        middle_ms: Median of the latencies of all answers.
        late_ms: Their 99th percentile.
    """

    rate: float
    refused: int
    broken: int
    middle_ms: float
    late_ms: float

    def __str__(self) -> str:
        return (
            f"{self.rate:,.0f} answers a second, p50 {self.middle_ms:.1f} ms, p99 {self.late_ms:.1f} ms,"
            f" {self.refused:,} refused, {self.broken:,} broken"
        )


def run() -> None:
    """Print a line for each measurement."""
    if shutil.which("wrk") is None:
        sys.exit("This measurement needs wrk: install it with `apt-get install wrk`.")
    with workplace() as folder:
        draw = np.random.default_rng(0)
        rows = [
            np.unique((ITEMS * draw.random(HISTORY) ** 3).astype(np.int64)).tolist() for _ in range(USERS)
        ]
        dataset_from_lists(folder / "data", rows, width=ITEMS)
        bodies = [json.dumps({"items": [str(item) for item in row], "k": K}) for row in rows]
        (folder / "bodies").write_text("\n".join(bodies) + "\n", encoding="utf-8")
        (folder / "script.lua").write_text(_SCRIPT % (folder / "bodies"), encoding="utf-8")
        for units in UNITS:
            _measure(folder, units)


def _measure(folder: Path, units: int) -> None:
    layers = [
        {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
        {"name": "taste", "units": units, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
    runs = [folder / f"run-{units}-{seed}" for seed in (0, 1)]
    for seed, path in enumerate(runs):
        model = train({"layers": layers}, {"epochs": 1, "seed": seed}, folder / "data", path, device="cpu")
    for _ in model.predict(folder / "data", k=K):
        pass
    started = perf_counter()
    number = sum(len(block.users) for block in model.predict(folder / "data", k=K))
    print(f"{units} units: without a service {number / (perf_counter() - started):,.0f} users a second")
    link = folder / f"current-{units}"
    _point(link, runs[0])
    with _service(link) as port:
        _load(folder, port, 2, CONNECTIONS)
        print(f"{units} units, {CONNECTIONS} connections: {_load(folder, port, SECONDS, CONNECTIONS)}")
    with _service(link, "--queue", str(CONNECTIONS)) as port:
        many = TIMES_CAPACITY * 2 * CONNECTIONS
        found = _load(folder, port, SECONDS, many)
        print(f"{units} units, {many} connections and room for {CONNECTIONS}: {found}")
    with _service(link) as port:
        wrk = _wrk(folder, port, 2 * SWAPS, CONNECTIONS)
        for number in range(1, SWAPS + 1):
            _point(link, runs[number % 2])
            while _measured(port, "widenet_swaps_total") < number:
                sleep(0.05)
        wrk.send_signal(signal.SIGINT)
        print(f"{units} units, {SWAPS} swaps under load: {_found(wrk)}")


def _point(link: Path, run: Path) -> None:
    beside = link.with_name("beside")
    beside.symlink_to(run)
    beside.replace(link)


@contextmanager
def _service(run: Path, *words: str) -> Iterator[int]:
    """A service of a run, which ends after the block; gives its port."""
    command = [sys.executable, "-m", "widenet", "serve", str(run), "--port", "0", "--device", "cpu", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if ready := re.search(r"http://\S+:(\d+)$", line.strip()):
                yield int(ready[1])
                break
        else:
            raise RuntimeError("the service did not start")
    finally:
        process.terminate()
        process.communicate()


def _measured(port: int, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def _load(folder: Path, port: int, seconds: int, connections: int) -> Load:
    return _found(_wrk(folder, port, seconds, connections))


def _wrk(folder: Path, port: int, seconds: int, connections: int) -> "subprocess.Popen[str]":
    command = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{seconds}s", "--timeout", "10s"]
    command += ["-s", str(folder / "script.lua"), f"http://127.0.0.1:{port}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _found(wrk: "subprocess.Popen[str]") -> Load:
    said, _ = wrk.communicate()
    numbers = re.search(r"^found (\d+) (\d+) (\d+) (\S+) (\S+)$", said, re.MULTILINE)
    rate = re.search(r"^Requests/sec:\s*(\S+)$", said, re.MULTILINE)
    assert numbers is not None, said
    assert rate is not None, said
    return Load(float(rate[1]), int(numbers[2]), int(numbers[3]), float(numbers[4]), float(numbers[5]))
