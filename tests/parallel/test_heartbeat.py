"""Processes that stop answering: named while the others wait for them, and told from those that are only
slow; and the thread that takes part in collectives.
"""

import re
import socket
from pathlib import Path

import pytest

from tests.scripts import Script
from tests.trainings import UNTIED as NETWORK
from tests.trainings import books
from widenet.errors import GroupError
from widenet.parallel import launch
from widenet.parallel.launch import Heartbeat, Line
from widenet.runs import train

ROOT = Path(__file__).parents[2]
TRAINING = {"epochs": 4, "batch_size": 4, "shards": 6, "optimizer": "momentum", "evaluation": None}
HANG_SECONDS = 240


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("heartbeat") / "data", num_examples=12).path


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return train(NETWORK, TRAINING, data, tmp_path_factory.mktemp("undisturbed") / "run").fingerprint()


def watcher(rank, size, hosted):
    heartbeat = Heartbeat(None, rank, size, "a:1", 60.0, hosted, lambda: False)
    heartbeat.beats = [(1, host, False) for host in "abcd"[:size]]
    return heartbeat


@pytest.mark.usefixtures("own_line")
def test_no_process_is_named_for_the_silence_of_the_store():
    """Process 2 was heard one pause before the store's last answer, and passes 48 seconds first."""
    heartbeat = watcher(1, 3, True)
    for silent, lost in (([46.0, 46.0, 51.0], []), ([51.0, 51.0, 56.0], ["0"])):
        heartbeat.silent = silent
        heartbeat.check()
        assert re.findall(r"process (\d) of 3", str(heartbeat.lost)) == lost


@pytest.fixture
def own_line(monkeypatch):
    """A line of the test in place of that of the process."""
    line = Line()
    monkeypatch.setattr(launch, "line", lambda: line)
    return line


SCRIPT = """
import os, signal, sys, threading, time
from widenet import WidenetError, train
from widenet.parallel import group, launch

launch.JOIN_SECONDS = {join}
launch.STUCK_SECONDS = 1
rank = int(os.environ["RANK"])

def after_epoch(network, epochs):
    if epochs == 2:
        {disturb}

try:
    model = train({network}, {training}, {data!r}, {out!r}, timeout={timeout}, after_epoch=after_epoch)
    print(model.fingerprint())
except WidenetError as error:
    sys.exit(f"{{type(error).__name__}}: {{error}}")
"""


def processes(size, data, out, disturb="pass", timeout=4, join=600, ranks=None):
    """A training in so many processes, of which the first holds the store, as under Slurm; something
    happens after two epochs.
    """
    documents = {"network": NETWORK, "training": TRAINING, "data": str(data), "out": str(out)}
    code = SCRIPT.format(**documents, disturb=disturb, timeout=timeout, join=join)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    variables = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    own = {rank: {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in ranks or range(size)}
    return {rank: Script(code, out.parent / f"said-{rank}", variables | own[rank]) for rank in own}


LOST = "was lost at {}: no sign of life for \\d+ seconds\\."


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("size", "stopped"), [(2, 1), (3, 0)], ids=["1 of 2", "0 of 3, which holds the store"]
)
def test_a_stopped_process_is_named_by_all_others_and_its_training_resumes(
    size, stopped, data, undisturbed, tmp_path
):
    group = processes(
        size, data, tmp_path / "run", f"os.kill(os.getpid(), signal.SIGSTOP) if rank == {stopped} else None"
    )
    said = {
        rank: process.communicate(timeout=HANG_SECONDS) for rank, process in group.items() if rank != stopped
    }
    assert state(group[stopped].pid) == "T", said
    group[stopped].kill()
    group[stopped].communicate()
    assert {group[rank].returncode for rank in said} == {GroupError.status}
    for out, complaint in said.values():
        assert out == ""
        missed = LOST.format("epoch (2, step 3|3, step 1), .*")
        assert re.fullmatch(rf"GroupError: process {stopped} of {size} \(host \S+\) {missed}\n", complaint), (
            complaint
        )
    assert train(NETWORK, TRAINING, data, tmp_path / "run", resume=True).fingerprint() == undisturbed


STUCK = """
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        group._is_busy = lambda device: True
        threading.Event().wait()
"""


def test_a_process_whose_device_waits_for_a_stopped_one_names_it_and_ends(data, tmp_path):
    """A simulated device: its work never ends, and the main thread waits for it where no error can be
    raised.
    """
    group = processes(2, data, tmp_path / "run", STUCK.strip())
    _, complaint = group[0].communicate(timeout=HANG_SECONDS)
    group[1].kill()
    group[1].communicate()
    assert group[0].returncode == GroupError.status
    assert re.fullmatch(rf"widenet: process 1 of 2 \(host \S+\) {LOST.format('.*')}\n", complaint), complaint


def test_a_process_that_is_slow_is_waited_for(data, undisturbed, tmp_path):
    group = processes(2, data, tmp_path / "run", "time.sleep(6) if rank == 0 else None", timeout=4)
    assert [each.communicate(timeout=HANG_SECONDS)[0] for each in group.values()] == [f"{undisturbed}\n"] * 2
    assert [each.returncode for each in group.values()] == [0, 0]


def test_a_process_that_does_not_come_is_named(data, tmp_path):
    (process,) = processes(2, data, tmp_path / "run", join=1, ranks=[0]).values()
    _, complaint = process.communicate(timeout=HANG_SECONDS)
    assert complaint.startswith("GroupError: process 1 of 2 was lost at start: ")
