"""Trainings into a store on machines that share no folder: a machine is a process with a cache of its own."""

# ruff: noqa: F811 (fixtures are imported)

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

import widenet
from tests.stores.conftest import servers, store, widenet_command  # noqa: F401 fixtures
from tests.stores.test_runs import (  # noqa: F401 a fixture among them
    NETWORK,
    TRAINING,
    URI,
    data,
    interrupt,
    train,
)
from widenet.training.state import Silence

TRAINING = TRAINING | {"shards": 3}


def on_machines(widenet_command, tmp_path, caches, *words, started=None):
    """Run a command line in a process for each cache, of one group; returns what each printed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def process(rank):
        variables = {"RANK": rank, "LOCAL_RANK": 0, "WORLD_SIZE": len(caches), "LOCAL_WORLD_SIZE": 1}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WIDENET_THREADS": 1}
        variables |= {"WIDENET_CACHE": tmp_path / caches[rank]}
        texts = {name: str(value) for name, value in variables.items()}
        return widenet_command(*words, started=started, **texts)

    with ThreadPoolExecutor(len(caches)) as pool:
        return [*pool.map(process, range(len(caches)))]


def shards(folder):
    return {path.name for path in folder.rglob("checkpoints/epoch*/wide-00.shard*")}


def test_a_killed_training_on_two_machines_is_resumed_by_other_processes(
    store, data, tmp_path, monkeypatch, widenet_command
):
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    (tmp_path / "training.json").write_text(json.dumps(TRAINING))
    expected = train(data, tmp_path / "undisturbed", TRAINING).fingerprint()
    words = f"train network.json training.json --data {data.path} --out {URI} --device cpu".split()
    running = []

    def kill(method, number):
        if method == "PUT" and number > 20 and store.published("run") is not None and store.is_first():
            for each in running:
                os.killpg(each.pid, signal.SIGKILL)

    store.count_from_here(kill)
    ended = on_machines(widenet_command, tmp_path, ["a", "b"], *words, started=running.append)
    assert [status for status, _ in ended] == [-signal.SIGKILL] * 2, ended
    assert shards(tmp_path / "a").isdisjoint(shards(tmp_path / "b"))
    assert len(shards(tmp_path / "a") | shards(tmp_path / "b")) == 3
    store.count_from_here()
    ended = on_machines(widenet_command, tmp_path, ["b", "a", "a"], *words, "--resume")
    assert [status for status, _ in ended] == [0, 0, 0], ended
    assert expected in ended[0][1]
    monkeypatch.setenv("WIDENET_CACHE", str(tmp_path / "third"))
    assert widenet.Model.load(URI, "cpu").fingerprint() == expected
    listed = {f"run/files/{sha256(content).hexdigest()}" for content in store.published("run").values()}
    assert {key for key in store.objects("run/files/") if not key.endswith("/")} == listed


@pytest.fixture
def uncut(store, tmp_path):
    """A dataset without a validation part."""
    del store
    users = [user for user in range(20) for _ in range(6)]
    return widenet.ingest({"user": users, "item": [*range(12)] * 10}, tmp_path / "uncut")


def test_torchrun_restarts_a_training_whose_first_machine_has_lost_its_folder(store, uncut, tmp_path):
    expected = widenet.train(None, None, uncut, tmp_path / "local", device="cpu", report=Silence())
    agents = {}

    def kill(method, number):
        if method == "PUT" and number > 16 and store.published("run") is not None and store.is_first():
            workers = {rank_of(worker): (name, worker) for name, worker in map(worker_of, agents.items())}
            name, worker = workers[0]
            os.kill(worker, signal.SIGSTOP)
            shutil.rmtree(tmp_path / name / "runs")
            os.kill(worker, signal.SIGKILL)

    store.count_from_here(kill)
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    torchrun = (
        f"-m torch.distributed.run --nnodes 2 --rdzv-backend c10d --rdzv-endpoint {place} --max-restarts 1"
    )
    words = f"-m widenet train --data {uncut.path} --out {URI} --device cpu"
    for name in ("a", "b"):
        variables = os.environ | {"WIDENET_CACHE": str(tmp_path / name), "WIDENET_THREADS": "1"}
        command = [sys.executable, *torchrun.split(), *words.split()]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        agents[name] = subprocess.Popen(command, cwd=tmp_path, env=variables, **pipes)
    said = "".join(agent.communicate()[0] for agent in agents.values())
    assert [agent.returncode for agent in agents.values()] == [0, 0], said
    assert "torchrun has restarted this training; it resumes from its newest checkpoint" in said
    assert expected.fingerprint() in said


def worker_of(agent):
    """The name of an agent's machine, and its only worker."""
    name, process = agent
    return name, int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1])


def rank_of(worker):
    variables = Path(f"/proc/{worker}/environ").read_bytes().split(b"\0")
    return next(int(each[len(b"RANK=") :]) for each in variables if each.startswith(b"RANK="))
