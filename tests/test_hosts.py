"""Trainings on several hosts: two network namespaces with a cable between them, and four agents of
torchrun of which one is lost.
"""

import json
import os
import re
import signal
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


def agent(node, out):
    """An agent of torchrun, which starts one process; the first holds the store of the rendezvous."""
    quick = (
        "join_timeout=300,last_call_timeout=3,keep_alive_interval=1,keep_alive_max_attempt=3,read_timeout=120"
    )
    how = {
        "--nnodes": "1:4",
        "--nproc-per-node": "1",
        "--max-restarts": "3",
        "--rdzv-backend": "c10d",
        "--rdzv-endpoint": f"127.0.0.1:{PORT + 1}",
        "--rdzv-id": out,
        "--local-addr": "127.0.0.1",
        "--rdzv-conf": f"{quick},read_timeout=120,is_host={node == 0}",
    }
    options = [word for pair in how.items() for word in pair]
    return [sys.executable, "-m", "torch.distributed.run", *options, "-m", *words(out, 12)]


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.faults
def test_when_one_of_four_nodes_is_lost_three_go_on(folder, undisturbed):
    elastic = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    out, lost = folder / "three", 2
    with started([agent(node, "three") for node in range(4)], folder, [elastic] * 4) as agents:
        comes_true((out / "checkpoints" / "latest").exists, folder)
        for pid in [agents[lost].pid, *children(agents[lost].pid)]:
            os.kill(pid, signal.SIGKILL)
        assert [agents[node].wait(HANG_SECONDS) for node in range(4) if node != lost] == [0, 0, 0]
    assert f"Fingerprint {undisturbed}\n" in "".join(said(folder, node) for node in range(4))
    assert json.loads((out / "machine.json").read_text())["processes"] == 3
