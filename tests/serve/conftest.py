"""A small world of runs, and real services on this machine."""

import http.client
import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.browser import LACKS, chromium  # noqa: F401
from tests.scripts import Conversation
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.parallel.exchange import fixed_arithmetic
from widenet.runs import train

WIDTH, NUM = 301, 120
NETWORK = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 8, "activation": "tanh"},
        {"name": "out", "kind": "output", "field": "items"},
    ]
}  # fmt: skip
TOKEN = "a-token-of-more-than-16-letters"


def pytest_ignore_collect(collection_path):
    """Modules that import what the extra installs are left out where it is missing."""
    return (
        True
        if LACKS and collection_path.name.startswith("test_") and collection_path.name != "test_app.py"
        else None
    )


@dataclass
class World:
    """A dataset, runs over it, and their users' histories."""

    folder: Path
    data: Path
    rows: list

    def run(self, name):
        return self.folder / "runs" / name


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Not to be written to."""
    folder = tmp_path_factory.mktemp("served")
    random = np.random.default_rng(4)
    rows = [sorted(random.choice(WIDTH, random.integers(0, 20), replace=False).tolist()) for _ in range(NUM)]
    data = dataset_from_lists(
        folder / "data",
        rows,
        ids=[f"u{row}" for row in range(NUM)],
        item_ids=[f"i{item}" for item in range(WIDTH)],
        titles=[f"Title {item}" for item in range(WIDTH)],
        heldout=[[row % WIDTH] for row in range(NUM)],
    )
    (folder / "runs").mkdir()
    for seed, name in enumerate(("first", "second")):
        train(NETWORK, {"epochs": 2, "shards": 3, "seed": seed}, data, folder / "runs" / name)
    return World(folder, data.path, rows)


@dataclass
class Reply:
    """What a request got."""

    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json["error"]["code"]


@dataclass
class Service:
    """A running service."""

    process: subprocess.Popen | Conversation
    port: int

    def ask(self, method, path, body=None, headers=None, connection=None):
        own = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            own.request(method, path, body, headers or {})
            answer = own.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            if connection is None:
                own.close()

    def post(self, path, value, connection=None, **headers):
        return self.ask(
            "POST", path, json.dumps(value), {"Content-Type": "application/json", **headers}, connection
        )

    def recommend(self, connection=None, **request):
        return self.post("/v1/recommend", request, connection)

    def get(self, path, **headers):
        return self.ask("GET", path, headers=headers)

    def measured(self, name):
        """The sum of a measurement over its labels."""
        lines = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.get("/metrics").body.decode(), re.MULTILINE)
        return sum(map(float, lines))

    def end(self):
        """Ask the service to end; returns its status and what it has said since it was ready."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


WIDENET = "from widenet.cli import main; main()"
STOPPING = """
import sys
from widenet.serve.engine import Engine

answers, loads = Engine.answers, []


def stopped(self, asks):
    if loads:  # not while it is loaded
        print("stopped", flush=True)
        sys.stdin.readline()
    return answers(self, asks)


def load(*words, load=Engine.load):
    loads.append(load(*words))
    return loads[-1]


Engine.answers, Engine.load = stopped, load
from widenet.cli import main; main()
"""
"""A service that stops before every batch until it gets a line, and says so."""


@contextmanager
def service(run, *words, script=WIDENET, program=None, command="serve"):
    """A service of a run, or the pages of a folder of runs, on a free port.

    script: what runs in a copy of a process that has loaded everything. program: instead, what Python runs,
    starting anew.
    """
    line = [command, str(run), "--port", "0", *map(str, words)]
    if program is None:
        process = Conversation(line, script)
    else:
        said = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen([sys.executable, *program, *line], env=environment, **said)
    try:
        said = ""
        for text in process.stderr:
            said += text
            if ready := re.search(r"http://\S+:(\d+)$", text.strip()):
                break
        else:
            pytest.fail(f"the service ended: {said}")
        yield Service(process, int(ready[1]))
    finally:
        process.kill()
        process.communicate() if program else process.close()


@pytest.fixture(scope="session")
def served(world):
    """A service of the first run with its users."""
    with service(world.run("first"), "--data", world.data) as running:
        yield running


@pytest.fixture(scope="session")
def ruled(tmp_path_factory):
    """An engine over items with attributes, its model and its dataset."""
    from widenet.serve.engine import Engine

    folder = tmp_path_factory.mktemp("ruled")
    rows = [(f"u{user}", f"i{(user * 7 + step) % 90}") for user in range(70) for step in (0, 3, 4, 9)]
    items = {
        "item": [f"i{item}" for item in range(90)],
        "genre": [f"g{item % 5}" for item in range(90)],
        "in_stock": [item % 3 > 0 for item in range(90)],
        "price": [item / 2 for item in range(90)],
    }
    users, bought = zip(*rows, strict=True)
    data = ingest({"user": users, "item": bought}, folder / "data", items=items)
    model = train(NETWORK, {"epochs": 2, "shards": 3}, data, folder / "run")
    return Engine.load(folder / "run", data, "cpu", None), model, data


def answered(engine, *asks):
    with fixed_arithmetic():
        return engine.answers(asks)


def predicted(model, data, **options):
    """What a user gets by `predict`: items and scores, by id."""
    found = {}
    for block in model.predict(data, **options):
        stops = np.cumsum(block.counts)
        for user, stop, count in zip(block.users, stops, block.counts, strict=True):
            own = slice(stop - count, stop)
            found[user] = list(zip(block.items[own], block.scores[own].tolist(), strict=True))
    return found


def pairs(answer):
    return [(item.item, item.score) for item in answer.items]
