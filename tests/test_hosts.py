"""A training on two hosts: network namespaces with a cable between them."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.trainings import UNTIED, books
from widenet.runs import train

ROOT = Path(__file__).parent.parent
TRAINING = {
    "epochs": 30,
    "batch_size": 4,
    "shards": 12,
    "optimizer": "momentum",
    "evaluation": None,
    "checkpoints": {"min_seconds": 0, "every_epochs": 2},
}
ADDRESSES, PORT = ("10.231.7.1", "10.231.7.2"), 29517
HANG_SECONDS = 400
LOST = r"process {} of 2 \(host {}\) was lost at epoch \d+, step \d+, .*: no sign of life for \d+ seconds\."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with documents and a dataset."""
    path = tmp_path_factory.mktemp("hosts")
    books(path / "data", num_examples=12)
    (path / "network.json").write_text(json.dumps(UNTIED))
    (path / "training.json").write_text(json.dumps(TRAINING))
    return path


@pytest.fixture(scope="module")
def undisturbed(folder):
    return train(
        folder / "network.json", folder / "training.json", folder / "data", folder / "undisturbed"
    ).fingerprint()


class Hosts:
    """Two network namespaces, `node-0` and `node-1`, that see nothing but each other."""

    def __init__(self):
        self.names = [f"widenet-{os.getpid()}-{host}" for host in (0, 1)]

    def command(self, host, words):
        """A command line that runs on a host, under the host's own name."""
        shell = f'hostname node-{host} && exec "$@"'
        return ["ip", "netns", "exec", self.names[host], "unshare", "--uts", "sh", "-c", shell, "sh", *words]

    def cable(self, state):
        ip("-n", self.names[0], "link", "set", "cable0", state)

    def build(self):
        for name in self.names:
            ip("netns", "add", name)
        ends = ["cable0", "netns", self.names[0], "type", "veth", "peer", "name", "cable1"]
        ip("link", "add", *ends, "netns", self.names[1])
        for host, name in enumerate(self.names):
            ip("-n", name, "address", "add", f"{ADDRESSES[host]}/24", "dev", f"cable{host}")
            for link in ("lo", f"cable{host}"):
                ip("-n", name, "link", "set", link, "up")
        subprocess.run(self.command(0, ["true"]), check=True, capture_output=True)

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def hosts():
    found = Hosts()
    try:
        found.build()
        yield found
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', None) or error}")
    finally:
        found.remove()


@contextmanager
def started(commands, folder, environments):
    """Commands that run side by side, each with what it says in a file; none is left running."""
    with ExitStack() as stack:
        running = []
        for number, (command, environment) in enumerate(zip(commands, environments, strict=True)):
            said = stack.enter_context((folder / f"said-{number}").open("w"))
            own = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
            running.append(subprocess.Popen(command, cwd=folder, env=own, stdout=said, stderr=said))
            stack.callback(running[-1].wait)
            stack.callback(running[-1].kill)
        yield running


def said(folder, number):
    return (folder / f"said-{number}").read_text()


def comes_true(condition, folder):
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "\n".join(
            path.read_text() for path in sorted(folder.glob("said-*"))
        )
        time.sleep(0.1)


def words(out, timeout):
    documents = ["network.json", "training.json", "--data", "data"]
    return ["widenet", "train", *documents, "--out", out, "--timeout", str(timeout)]


@pytest.mark.slow
def test_processes_on_two_hosts_name_each_other_when_the_cable_is_cut(hosts, folder, undisturbed):
    out = folder / "cut"
    where = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": str(PORT)}
    environments = [where | {"RANK": str(rank)} for rank in (0, 1)]
    commands = [hosts.command(rank, [sys.executable, "-m", *words("cut", 5)]) for rank in (0, 1)]
    with started(commands, folder, environments) as processes:
        comes_true((out / "checkpoints" / "latest").exists, folder)
        hosts.cable("down")
        assert [process.wait(HANG_SECONDS) for process in processes] == [3, 3]
    for rank in (0, 1):
        assert re.search(LOST.format(1 - rank, f"node-{1 - rank}"), said(folder, rank)), said(folder, rank)
    assert train(None, None, folder / "data", out, resume=True).fingerprint() == undisturbed
