"""Loads a service over loopback: rates, swaps, and memory.

Beside it, plain torch behind uvicorn, and the same model in batches without a service. Needs wrk, a program
of Debian, and the extra `serve`.
"""

import argparse
import http.client
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep

import numpy as np

from benchmarks.load import finished, load, need_programs, started, write_requests
from benchmarks.places import workplace
from benchmarks.results import Table, publish
from widenet import dataset_from_lists, train

ITEMS, USERS, HISTORY, K = 41_000, 4_096, 20, 20
UNITS = (64, 512)
CLIENTS = (1, 8, 64)
CONNECTIONS, SECONDS, ROUNDS, SWAPS = 64, 15, 3, 100
REQUESTS = 1_000_000
PARTS = ("rates", "swaps", "memory")


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--units", type=int, nargs="+", default=UNITS, help="hidden units of the networks")
    parser.add_argument(
        "--requests", type=int, default=REQUESTS, help="requests of the measurement of memory"
    )
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS, help="tables to measure")


def run(asked: argparse.Namespace) -> None:
    """Print the tables."""
    need_programs()
    tables = {
        "rates": Table(
            f"{ITEMS:,} items, the {K} best",
            ["units", "clients", "program", "answers a second", "p50 ms", "p99 ms", "not 200", "broken"],
            notes=[
                f"Medians of {ROUNDS} rounds of {SECONDS} s, alternately. wrk asks from the same processors."
            ],
        ),
        "swaps": Table(
            "A newer model while requests arrive",
            ["units", "swaps", "answers a second", "p50 ms", "p99 ms", "not 200", "broken"],
        ),
        "memory": Table("Resident memory", ["units", "requests", "resident"]),
    }
    with workplace() as folder:
        _write(folder)
        for units in asked.units:
            runs = [_trained(folder, units, seed) for seed in (0, 1)]
            for part in asked.parts:
                if part == "rates":
                    _rates(folder, units, runs[0], tables[part])
                elif part == "swaps":
                    _swaps(folder, units, runs, tables[part])
                elif units == asked.units[0]:
                    _memory(folder, units, runs[0], asked.requests, tables[part])
                print(tables[part], flush=True)
    publish("serve", [tables[part] for part in asked.parts], asked.out)


def _write(folder: Path) -> None:
    draw = np.random.default_rng(0)
    rows = [np.unique((ITEMS * draw.random(HISTORY) ** 3).astype(np.int64)).tolist() for _ in range(USERS)]
    dataset_from_lists(folder / "data", rows, width=ITEMS)
    bodies = [json.dumps({"items": [str(item) for item in row], "k": K}) for row in rows]
    write_requests(folder, bodies)
    (folder / "body").write_text(bodies[0], encoding="utf-8")


def _trained(folder: Path, units: int, seed: int) -> Path:
    layers = [
        {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
        {"name": "taste", "units": units, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
    path = folder / f"run-{units}-{seed}"
    train({"layers": layers}, {"epochs": 1, "seed": seed}, folder / "data", path, device="cpu")
    return path


def _rates(folder: Path, units: int, run: Path, table: Table) -> None:
    """Add a row for each program and number of clients."""
    batches = _batches(folder, run)
    table.rows.append([str(units), "-", "predict, without a service", f"{batches:,.0f}", *["-"] * 4])
    commands = {
        "widenet serve": _serve(run),
        "plain torch": ("benchmarks.plain_service", str(ITEMS), str(units)),
    }
    found: dict[tuple[int, str], list[tuple[float, list[str]]]] = {}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            with _service(*command) as (_, port):
                load(folder, port, 2, CONNECTIONS)
                for clients in CLIENTS:
                    measured = load(folder, port, SECONDS, clients)
                    found.setdefault((clients, name), []).append((measured.rate, measured.cells()))
    for clients in CLIENTS:
        for name in commands:
            turns = found[clients, name]
            table.turns[f"{name}, {units} units, {clients} clients"] = [rate for rate, _ in turns]
            table.rows.append([str(units), str(clients), name, *sorted(turns)[ROUNDS // 2][1]])


def _batches(folder: Path, run: Path) -> float:
    """Users a second of `widenet predict` on one thread, without its start."""
    code = (
        "import sys, time, torch; from widenet import Model; torch.set_num_threads(1)\n"
        "model = Model.load(sys.argv[1], device='cpu')\n"
        f"for _ in range(2):\n  started = time.perf_counter()\n"
        f"  number = sum(len(block.users) for block in model.predict(sys.argv[2], k={K}))\n"
        "print(number / (time.perf_counter() - started))"
    )
    command = [sys.executable, "-c", code, str(run), str(folder / "data")]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(said.split()[-1])


def _swaps(folder: Path, units: int, runs: list[Path], table: Table) -> None:
    link = folder / f"current-{units}"
    _point(link, runs[0])
    with _service(*_serve(link)) as (_, port):
        wrk = started(folder, port, 5 * SWAPS, CONNECTIONS)
        before = perf_counter()
        for number in range(1, SWAPS + 1):
            _point(link, runs[number % 2])
            while _measured(port, "widenet_swaps_total") < number:
                if perf_counter() - before > 4 * SWAPS:
                    wrk.kill()
                    sys.exit(f"The service has swapped {number - 1} times in {4 * SWAPS} seconds.")
                sleep(0.05)
        wrk.send_signal(signal.SIGINT)
        table.rows.append([str(units), str(SWAPS), *finished(wrk).cells()])


def _memory(folder: Path, units: int, run: Path, requests: int, table: Table) -> None:
    with _service(*_serve(run)) as (process, port):
        answered = 0
        while answered < requests:
            answered += load(folder, port, SECONDS, CONNECTIONS).answers
            table.turns[str(answered)] = _resident(process)
    points = list(table.turns.items())
    for number, resident in (points[0], points[len(points) // 2], points[-1]):
        table.rows.append([str(units), f"{int(number):,}", f"{resident / 1e6:,.1f} MB"])


def _resident(process: "subprocess.Popen[str]") -> int:
    """Resident bytes of a service."""
    text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return 1024 * int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0])


def _point(link: Path, run: Path) -> None:
    beside = link.with_name("beside")
    beside.symlink_to(run)
    beside.replace(link)


def _serve(run: Path) -> tuple[str, ...]:
    return ("widenet", "serve", str(run), "--port", "0", "--device", "cpu")


@contextmanager
def _service(*command: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A service, which ends after the block; gives its process and port."""
    line = [sys.executable, "-m", *command]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for said in process.stderr:
            if ready := re.search(r"http://\S+:(\d+)$", said.strip()):
                yield process, int(ready[1])
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
