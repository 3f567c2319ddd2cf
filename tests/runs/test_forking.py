"""A model that a server has loaded before it forks the processes that use it."""

import http.client
import json
import os
import socket
import subprocess
import sys

import pytest

from tests.trainings import TIED
from widenet.data.lists import dataset_from_lists
from widenet.runs import train

APPLICATION = """
import json
import os

import widenet

model = widenet.Model.load(os.environ["RUN"])


def answers():
    return [[[row.item, row.score] for row in model.recommend([item], k=5)] for item in "0369"]


loaded = {"process": os.getpid(), "answers": answers()}


def application(environment, start):
    start("200 OK", [("Content-Type", "application/json")])
    return [json.dumps([loaded, {"process": os.getpid(), "answers": answers()}]).encode()]
"""


@pytest.fixture
def port(tmp_path):
    """gunicorn with `--preload` and two processes, which listens before it has started."""
    rows = [[(user + step) % 12 for step in (0, 2, 5, 7)] for user in range(20)]
    data = dataset_from_lists(tmp_path / "data", rows, width=12)
    train(TIED, {"epochs": 1, "batch_size": 8}, data, tmp_path / "run")
    (tmp_path / "served.py").write_text(APPLICATION)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        words = ["gunicorn", "--preload", "--workers", "2", "--bind", f"fd://{listening.fileno()}", "served"]
        environment = os.environ | {"RUN": str(tmp_path / "run"), "PYTHONPATH": os.pathsep.join(sys.path)}
        server = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment,
            pass_fds=[listening.fileno()],
        )
        yield listening.getsockname()[1]
        server.terminate()
        assert server.wait(60) == 0


def test_processes_that_gunicorn_forks_answer_as_their_parent_did(port):
    seen = set()
    for _ in range(20):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/")
        loaded, here = json.loads(connection.getresponse().read())
        connection.close()
        assert here["answers"] == loaded["answers"]
        assert here["process"] != loaded["process"]
        seen.add(here["process"])
    assert 1 <= len(seen) <= 2
