"""Processes that stop answering: named while the others wait for them, and told from those that are only
slow; and the thread that takes part in collectives.
"""

import gc
import re
import socket
import threading
import weakref
from pathlib import Path

import pytest

from tests.scripts import Script
from widenet.data.lists import dataset_from_lists
from widenet.errors import GroupError
from widenet.parallel import launch
from widenet.parallel.launch import Heartbeat, Line
from widenet.runs import train

ROOT = Path(__file__).parents[2]
WIDTH, EXAMPLES = 60, 12
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "denoise": 0.3},
        {"name": "taste", "units": 6, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
TRAINING = {"epochs": 4, "batch_size": 4, "shards": 6, "optimizer": "momentum"}
HANG_SECONDS = 240


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows = [
        sorted({(example * 37 + step * step * 5) % WIDTH for step in range(5)}) for example in range(EXAMPLES)
    ]
    path = tmp_path_factory.mktemp("heartbeat") / "data"
    dataset_from_lists(path, rows, width=WIDTH)
    return path


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return train(NETWORK, TRAINING, data, tmp_path_factory.mktemp("undisturbed") / "run").fingerprint()


def test_a_line_keeps_nothing_of_work_that_failed():
    class Argument:
        pass

    line, freed, argument = Line(), threading.Event(), Argument()
    weakref.finalize(argument, freed.set)
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError):
            line.submit(lambda _: 1 / 0, argument)()
        del argument
        assert freed.wait(timeout=60)
    finally:
        gc.enable()


def watcher(rank, size, hosted):
    heartbeat = Heartbeat(None, rank, size, "a:1", 60.0, hosted, lambda: False)
    heartbeat.beats = [(1, host, False) for host in "abcd"[:size]]
    return heartbeat


@pytest.mark.usefixtures("own_line")
def test_no_process_is_named_for_the_silence_of_the_store():
    # Process 2 was heard one pause before the store's last answer. So its silence is longer than the store's,
    # and passes the limit of 48 seconds first.
    heartbeat = watcher(1, 3, True)
    heartbeat.silent = [46.0, 46.0, 51.0]
    heartbeat.check()
    assert heartbeat.lost is None
    heartbeat.silent = [51.0, 51.0, 56.0]
    heartbeat.check()
    assert str(heartbeat.lost).startswith("process 0 of 3 (host a) was lost at start: ")


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
{last}
"""


def processes(size, data, out, disturb="pass", timeout=4, join=600, ranks=None):
    """A training in so many processes, of which the first holds the store, as under Slurm; something
    happens after two epochs.
    """
    variables, code = group(size, data, out, disturb=disturb, timeout=timeout, join=join, last="")
    return {
        rank: Script(
            code, out.parent / f"said-{rank}", {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in (range(size) if ranks is None else ranks)
    }


def group(size, data, out, **how):
    """The variables of a group of processes, but for their ranks, and what they run."""
    code = SCRIPT.format(network=NETWORK, training=TRAINING, data=str(data), out=str(out), **how)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    return {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}, code


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


def assert_ended_well(group, undisturbed):
    """What torch says in its own words, where the process with the store ends first, does not count."""
    assert [process.communicate(timeout=HANG_SECONDS)[0] for process in group.values()] == [
        f"{undisturbed}\n"
    ] * len(group)
    assert [process.returncode for process in group.values()] == [0] * len(group)


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
    assert_ended_well(group, undisturbed)


def test_a_process_that_does_not_come_is_named(data, tmp_path):
    (process,) = processes(2, data, tmp_path / "run", join=1, ranks=[0]).values()
    _, complaint = process.communicate(timeout=HANG_SECONDS)
    assert complaint.startswith(
        "GroupError: process 1 of 2 was lost at start: it did not join within 1 seconds."
    )
