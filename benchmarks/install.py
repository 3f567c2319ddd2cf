"""Measures the way of a new user: from `pip install` to a page that recommends by title."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from benchmarks.places import DATA, ROOT, workplace
from benchmarks.results import Table, publish

SEARCH = "hobbit"


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    pinned = ["-c", str(ROOT / "constraints.txt"), "torch"]
    parser.add_argument(
        "--torch", nargs="+", default=pinned, help="words that pip installs torch's CPU build by"
    )
    parser.add_argument(
        "--ratings", type=Path, default=DATA / "goodbooks-10k/ratings.csv", help="the CSV file"
    )
    parser.add_argument("--titles", type=Path, default=DATA / "goodbooks-10k/books.csv", help="its titles")


def run(asked: argparse.Namespace) -> None:
    """Print the seconds of each step."""
    table = Table("From pip install to a page", ["step", "seconds"])
    with workplace() as folder:
        environment = folder / "venv"
        python, widenet = environment / "bin/python", environment / "bin/widenet"
        steps: dict[str, list[str | Path]] = {
            "python -m venv": [sys.executable, "-m", "venv", environment],
            "pip install torch": [python, "-m", "pip", "install", "--quiet", *asked.torch],
            'pip install "path/to/widenet[serve]"': [
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                f"{ROOT}[serve]",
            ],
            "widenet data ingest": [
                *(widenet, "data", "ingest", asked.ratings, "--user", "user_id", "--item", "book_id"),
                *("--value", "rating", "--min-value", "4", "--titles", asked.titles, "--title-id", "id"),
                *("--out", "data/whole"),
            ],
            "widenet data split": [
                *(widenet, "data", "split", "data/whole", "--heldout", "0.2", "--out", "data/books"),
            ],
            "widenet train": [widenet, "train", "--data", "data/books", "--out", "runs/books", "--quiet"],
        }
        for name, line in steps.items():
            table.rows.append([name, _seconds(partial(subprocess.run, line, cwd=folder, check=True))])
        line = [widenet, "serve", "runs/books", "--data", "data/books", "--port", "0"]
        began = time.perf_counter()
        with subprocess.Popen(line, cwd=folder, stderr=subprocess.PIPE, text=True) as service:
            try:
                assert service.stderr is not None
                address = next(word for said in service.stderr for word in said.split() if "http://" in word)
                table.rows.append(["widenet serve, until it is ready", f"{time.perf_counter() - began:.1f}"])
                table.rows.append(["a search by title, recommendations", _seconds(partial(_ask, address))])
            finally:
                service.terminate()
    total = sum(float(seconds) for _, seconds in table.rows)
    table.rows.append(["all", f"{total:.1f} ({total / 60:.1f} minutes)"])
    table.notes.append(f"{asked.ratings.name}: {asked.ratings.stat().st_size / 1e6:.0f} MB.")
    print(table)
    publish("install", [table], asked.out)


def _seconds(step: Callable[[], object]) -> str:
    began = time.perf_counter()
    step()
    return f"{time.perf_counter() - began:.1f}"


def _ask(address: str) -> None:
    """Load the page, find an item by a part of its title, and recommend by it."""
    with urlopen(address) as page:
        assert b"Recommendations" in page.read()
    with urlopen(f"{address.rstrip('/')}/v1/items?{urlencode({'search': SEARCH})}") as answer:
        found = json.load(answer)["items"][0]
    body = json.dumps({"items": [found["item"]]}).encode()
    wanted = Request(f"{address.rstrip('/')}/v1/recommend", body, {"Content-Type": "application/json"})
    with urlopen(wanted) as answer:
        items = json.load(answer)["items"]
    print(f"{found['title']}: {', '.join(each['title'] for each in items[:3])}")
    assert len(items) == 10
