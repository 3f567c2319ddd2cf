"""Visits `widenet ui` over 1,000 runs of 50 metrics in a real Chromium, until its table is sorted.

Needs the extra `serve`, Playwright and Debian's Chromium.
"""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.places import workplace
from benchmarks.results import machine, quartiles
from widenet import dataset_from_lists, train
from widenet.training.run_path import locked

RUNS, EPOCHS, VISITS, NEW_EPOCHS = 1_000, 30, 9, 5
METRICS = [
    f"{name}@{k}"
    for name in (
        "recall",
        "precision",
        "ndcg",
        "map",
        "mrr",
        "hit_rate",
        "coverage",
        "popularity",
        "novelty",
        "diversity",
    )
    for k in (5, 10, 20, 50, 100)
]
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 4},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}


def run() -> None:
    """Print the seconds of each step."""
    from playwright.sync_api import sync_playwright

    with workplace() as folder, sync_playwright() as driver:
        write_runs(folder, RUNS)
        chromium = driver.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        print(f"\n{RUNS:,} runs of {EPOCHS} epochs and {len(METRICS)} metrics\n{machine()}\n")
        print("| | seconds | slowest |\n|---|---|---|")
        start = perf_counter()
        with locked(folder / "runs" / "run 0000"), pages(folder / "runs") as address:
            _print("start of `widenet ui`", [perf_counter() - start])
            visits = [visit(chromium, address) for _ in range(VISITS)]
            for at, step in enumerate(("page read and shown", "and sorted by a click", "page of a run")):
                _print(step, [times[at] for times in visits])
            _print("an epoch shows in the table", list(live(chromium, address, folder / "runs" / "run 0000")))
        chromium.close()


def _print(step: str, seconds: list[float]) -> None:
    print(f"| {step} | {quartiles(seconds)[0]:.2f} | {max(seconds):.2f} |", flush=True)


def write_runs(folder: Path, number: int) -> None:
    """Write runs that differ in learning rate and log: copies of a small one, the first without weights."""
    data = dataset_from_lists(folder / "data", [[0, 1], [1, 2], [2, 3]], width=4)
    train(NETWORK, {"epochs": 1, "shards": 1}, data, folder / "first")
    document = json.loads((folder / "first" / "training.json").read_text())
    for at in range(number):
        path = folder / "runs" / f"run {at:04}"
        unneeded = ["checkpoints", "tensorboard", "report.html", *([] if at else ["model"])]
        shutil.copytree(folder / "first", path, ignore=shutil.ignore_patterns(*unneeded))
        changed = {"epochs": EPOCHS + NEW_EPOCHS, "evaluation": {"metric": "ndcg@20"}}
        changed |= {"optimizer": {"kind": "adam", "learning_rate": (at + 1) / 1_000}}
        (path / "training.json").write_text(json.dumps(document | changed))
        lines = [json.dumps(_line(at, epoch)) for epoch in range(1, EPOCHS + 1)]
        (path / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _line(number: int, epoch: int) -> dict[str, Any]:
    """A line of a log, whose numbers rise or fall smoothly."""
    height = 0.1 + (number * 37 % 1_000) / 5_000
    rising = [height * (1 - math.exp(-epoch / (8 + at))) for at in range(len(METRICS))]
    own = {"epoch": epoch, "loss": 2 + 5 * math.exp(-epoch / 9) + height, "learning_rate": 0.01}
    return own | {"seconds": 1.5, "examples_per_second": 1e4} | dict(zip(METRICS, rising, strict=True))


@contextmanager
def pages(runs: Path) -> Iterator[str]:
    """Start the pages of a folder on a free port, and give their address."""
    line = [sys.executable, "-u", "-m", "widenet", "ui", str(runs), "--port", "0"]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stderr is not None
        address = next(found[0] for each in process.stderr if (found := re.search(r"http://\S+", each)))
        try:
            yield f"{address.rstrip('/')}/"
        finally:
            process.terminate()


def visit(chromium: Any, address: str) -> tuple[float, float, float]:
    """Return the seconds until the table takes clicks, until it is sorted, and of the page of a run."""
    with chromium.new_context() as context:
        page = context.new_page()
        start = perf_counter()
        page.goto(address, wait_until="domcontentloaded")
        shown = perf_counter()
        page.get_by_role("button", name="loss").click()
        page.wait_for_selector("th[aria-sort=descending] button:text-is('loss')")
        page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        in_order = perf_counter()
        page.goto(f"{address}run?name=run+0001", wait_until="domcontentloaded")
        page.wait_for_selector("canvas")
        return shown - start, in_order - start, perf_counter() - in_order


def live(chromium: Any, address: str, path: Path) -> Iterator[float]:
    """Yield the seconds from a line of a log to its number in the table."""
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(address)
        page.get_by_label("Find").fill(path.name)
        for epoch in range(EPOCHS + 1, EPOCHS + NEW_EPOCHS + 1):
            start = perf_counter()
            with (path / "log.jsonl").open("a") as file:
                file.write(json.dumps(_line(0, epoch)) + "\n")
            page.wait_for_selector(f"#rows td:text-is('{epoch} of {EPOCHS + NEW_EPOCHS}')")
            yield perf_counter() - start
