"""Processes that stop answering: named while the others wait for them, and told from those that are only
slow.
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parallel.copied import children, command
from tests.scripts import Script
from widenet.cli.wording import on_command_line
from widenet.data.lists import dataset_from_lists
from widenet.errors import GroupError
from widenet.parallel.heartbeat import Beat, Heartbeat, Roll
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


PAUSE = 1.0


def looked(roll, times):
    """What each look at these times gives of process 1."""
    return [roll.look(time)[1] for time in times]


def test_silence_is_counted_from_the_last_sign_of_life():
    roll = Roll(0, 2, PAUSE)
    roll.beats[1] = Beat(1, "a")
    assert looked(roll, [100.0, 101.0, 102.0]) == [0.0, 1.0, 2.0]
    roll.beats[1] = Beat(2, "a")
    assert looked(roll, [103.0, 104.0]) == [0.0, 1.0]


def test_a_process_that_was_itself_stopped_does_not_take_the_others_for_lost():
    roll = Roll(0, 2, PAUSE)
    roll.beats[1] = Beat(1, "a")
    assert looked(roll, [100.0, 100_000.0, 100_001.0]) == [0.0, 2 * PAUSE, 3 * PAUSE]


def test_nothing_is_expected_of_a_process_that_has_left_in_good_order():
    roll = Roll(0, 2, PAUSE)
    roll.beats[1] = Beat(1, "a", True)
    assert looked(roll, [100.0, 101.0, 102.0]) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("silent", "lost"),
    [
        ({1: 50.0}, "process 1 of 4 (host b) was lost at start"),
        ({1: 49.0, 3: 50.0}, "process 1 of 4 (host b) and process 3 of 4 (host d) were lost at start"),
        ({1: 48.0, 2: 47.0}, None),
    ],
)
def test_every_process_that_is_silent_for_too_long_is_named(silent, lost):
    heartbeat = Heartbeat(None, 0, 4, "a:1", 60.0, False, lambda: False)
    heartbeat._roll.beats = [Beat(1, host) for host in "abcd"]
    heartbeat._check({rank: silent.get(rank, 0.0) for rank in range(4)})
    assert heartbeat.lost is None if lost is None else str(heartbeat.lost).startswith(f"{lost}: ")


def test_no_process_is_named_for_the_silence_of_the_store():
    # Process 2 was heard one pause before the store's last answer. So its silence is longer than the store's,
    # and passes the limit of 48 seconds first.
    heartbeat = Heartbeat(None, 1, 3, "a:1", 60.0, True, lambda: False)
    heartbeat._roll.beats = [Beat(1, host) for host in "abc"]
    heartbeat._check({0: 46.0, 1: 46.0, 2: 51.0})
    assert heartbeat.lost is None
    heartbeat._check({0: 51.0, 1: 51.0, 2: 56.0})
    assert str(heartbeat.lost).startswith("process 0 of 3 (host a) was lost at start: ")


def test_the_store_is_silent_while_it_does_not_answer():
    roll = Roll(0, 2, PAUSE)
    roll.answers = 1
    assert [roll.look(time)[0] for time in (100.0, 101.0, 102.0)] == [0.0, 1.0, 2.0]


SCRIPT = """
import os, signal, sys, threading, time
from widenet import WidenetError, train
from widenet.parallel import group, heartbeat

heartbeat.JOIN_SECONDS = {join}
heartbeat.STUCK_SECONDS = 1
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


LOST = (
    "was lost at {}: no sign of life for \\d+ seconds. It was stopped, its machine is down, or the network is"
    " cut."
)
REMEDY = "Start again; resume a training with `resume=True`."


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
    assert state(group[stopped].pid) == "T"
    group[stopped].kill()
    group[stopped].communicate()
    assert {group[rank].returncode for rank in said} == {GroupError.status}
    for out, complaint in said.values():
        assert out == ""
        missed = LOST.format("epoch (2, step 3|3, step 1), .*")
        assert re.fullmatch(
            rf"GroupError: process {stopped} of {size} \(host \S+\) {missed} {REMEDY}\n", complaint
        ), complaint
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
    assert re.fullmatch(rf"widenet: process 1 of 2 \(host \S+\) {LOST.format('.*')} {REMEDY}\n", complaint), (
        complaint
    )


def test_a_process_that_is_slow_is_waited_for(data, undisturbed, tmp_path):
    group = processes(2, data, tmp_path / "run", "time.sleep(8) if rank == 0 else None", timeout=4)
    assert_ended_well(group, undisturbed)


STAYS = """
beats = next(thread for thread in threading.enumerate() if thread.name == "heartbeat")
beats.join() if rank == 1 else None
"""


def test_a_process_that_ends_after_the_one_that_holds_the_store_ends_well(data, undisturbed, tmp_path):
    # Its threads end when the store is gone. Pauses of 5 seconds let process 0 end before process 1 has read
    # that it does. Python itself must end them.
    how = {"disturb": "pass", "timeout": 60, "join": 600, "last": STAYS}
    variables, code = group(2, data, tmp_path / "run", **how)
    common = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    said = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = {
        rank: subprocess.Popen(
            [sys.executable, "-c", code], env={**common, "RANK": rank, "LOCAL_RANK": rank}, **said
        )
        for rank in "01"
    }
    assert_ended_well(started, undisturbed)


def test_a_process_that_does_not_come_is_named(data, tmp_path):
    (process,) = processes(2, data, tmp_path / "run", join=1, ranks=[0]).values()
    _, complaint = process.communicate(timeout=HANG_SECONDS)
    assert complaint.startswith("GroupError: process 1 of 2 did not join the group within 1 seconds.")


def test_the_command_names_a_process_that_was_stopped_from_outside(data, tmp_path, monkeypatch):
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    (tmp_path / "training.json").write_text(json.dumps({**TRAINING, "epochs": 10**6}))
    words = [
        "train",
        "network.json",
        "training.json",
        "--data",
        str(data),
        "--out",
        "run",
        "--processes",
        "2",
        "--timeout",
        "4",
    ]
    monkeypatch.chdir(tmp_path)
    process = command(words)
    while not process.stderr.readline().startswith("epoch "):
        assert process.returncode is None
    _, second = children(process)
    os.kill(second, signal.SIGSTOP)
    _, complaint = process.communicate(timeout=HANG_SECONDS)
    assert re.search(
        rf"^widenet: process 1 of 2 \(host \S+\) {LOST.format('epoch .*')} {on_command_line(REMEDY)}$",
        complaint,
        re.MULTILINE,
    ), complaint
    assert complaint.endswith("widenet: process 1 of 2 did not end and was killed.\n")
    assert process.returncode == GroupError.status
