"""What a process learns from its launcher; and starting, watching and ending the processes of a command, with
stand-ins for `widenet` that start quickly.
"""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scripts import Conversation
from widenet.parallel.group import is_leader, num_processes
from widenet.parallel.launch import (
    launch,
    launcher_variable,
    leave_launcher,
    started_by_mpi,
)

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "PMIX_RANK": "2",
    "PMIX_NAMESPACE": "prterun-node1-11689@1",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1", "PMI_FD": "8"}
"""Variables as Open MPI 4.1 and 5.0 and MPICH 4.0 were seen to set them."""
SRUN = {
    "SLURM_PROCID": "2",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "3",
    "SLURM_STEP_NODELIST": "a[1-2]",
}
DAEMON = SRUN | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_NODELIST": "a2"}
"""Slurm's variables as a daemon of mpirun on a second node hands them on."""


def by_torchrun(*values):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    return dict(zip(names, values, strict=True))


THIRD, OF_SRUN = ["2", "3", "0", "1", None], ["2", "3", "0", None, "a1"]
LAUNCHERS = {
    "none": ({}, [None] * 5, False),
    "a rank alone": ({"RANK": "1"}, ["1", *[None] * 4], False),
    "a batch script without srun": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, ["0", *[None] * 4], False),
    "torchrun": (by_torchrun("2", "3", "0", "1"), THIRD, False),
    "Open MPI": (OPEN_MPI, THIRD, True),
    "MPICH": (MPICH, THIRD, True),
    "Open MPI within a Slurm job": (OPEN_MPI | DAEMON, THIRD, True),
    "torchrun within Open MPI": (
        OPEN_MPI | by_torchrun("5", "6", "1", "2") | {"TORCHELASTIC_RUN_ID": "a"},
        ["5", "6", "1", "2", None],
        False,
    ),
    "srun": (SRUN, OF_SRUN, False),
    "srun --mpi=pmi2": (SRUN | {"PMI_RANK": "2", "PMI_SIZE": "3"}, OF_SRUN, False),
    "srun --mpi=pmix": (SRUN | {"PMIX_RANK": "2", "PMIX_NAMESPACE": "slurm.pmix.7.0"}, OF_SRUN, False),
}


@pytest.fixture
def told(monkeypatch):
    """Sets the variables of a launcher in place of all that there may be."""

    def tell(environment):
        for name in os.environ:
            if name.startswith(
                ("OMPI_", "PMI", "MPI_", "SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_")
            ) or name in ("RANK", "WORLD_SIZE"):
                monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return tell


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_process_learns_its_place_from_the_launcher_that_has_started_it(launcher, told):
    environment, expected, mpi = LAUNCHERS[launcher]
    told(environment)
    assert [
        launcher_variable(name)
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
    ] == expected
    assert started_by_mpi() == mpi
    size = int(expected[1] or 1)
    assert (num_processes(), is_leader()) == (size, size == 1)


@pytest.mark.parametrize("wrapper", [[], ["bash", "-c", '"$@"; true', "bash"]], ids=["alone", "in a script"])
def test_the_launcher_is_the_nearest_process_above_that_has_no_rank(wrapper, told):
    told(MPICH)
    code = "from widenet.parallel.launch import launcher_identity; print(launcher_identity())"
    ended = subprocess.run([*wrapper, sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split("-")[0] == str(os.getpid())


NODES = {
    "": "10.0.0.1",
    "node5": "node5",
    "a[01-04,7]": "a01",
    "a[007]": "a007",
    "gpu-b7,gpu-a[2-3]": "gpu-b7",
    "rack[1-2,9]-node[03-04],x1": "rack1-node03",
    "cn[0-1].ib": "cn0.ib",
}


@pytest.mark.parametrize("nodes", NODES)
def test_under_slurm_the_group_meets_at_the_first_node_of_the_step(nodes, told):
    told({"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1", "SLURM_STEP_NODELIST": nodes})
    assert launcher_variable("MASTER_ADDR") == NODES[nodes]
    told({"MASTER_ADDR": "told", "SLURM_STEP_NODELIST": nodes})
    assert launcher_variable("MASTER_ADDR") == "told"


def test_a_process_may_leave_its_launcher(told):
    told({name: value for environment, *_ in LAUNCHERS.values() for name, value in environment.items()})
    leave_launcher()
    assert launcher_variable("WORLD_SIZE") is None
    assert not started_by_mpi()


ROOT = str(Path(__file__).parents[2])
HANG_SECONDS = 240
BEGINNING = """
import os, signal, sys, time
from pathlib import Path

rank, said = int(os.environ["RANK"]), Path("said")

def say(text, file=sys.stderr):
    file.write(f"{text}\\n")
    file.flush()

def get_ready():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))

def wait_for_ever():
    signal.pause()

def wait_until_said():
    while not said.exists():
        time.sleep(0.01)
    return True
"""


@pytest.fixture
def widenet(tmp_path, monkeypatch):
    """Makes what `python -m widenet` runs: a piece of code that knows its `rank`."""

    def of(code):
        (tmp_path / "widenet").mkdir(exist_ok=True)
        (tmp_path / "widenet" / "__init__.py").touch()
        (tmp_path / "widenet" / "__main__.py").write_text(BEGINNING + code)
        monkeypatch.chdir(tmp_path)

    return of


LOST = "process {} of {} was lost ({})."
ENDS = {
    "a mistake of the second, of which the first knows": (
        "say(f'said by {rank}'); sys.exit(2 if rank else 3)",
        (2, None),
        "said by 0\nsaid by 1\n",
    ),
    "the first killed": (
        "wait_for_ever() if rank else os.kill(os.getpid(), 9)",
        (3, LOST.format(0, 2, "signal SIGKILL")),
        "",
    ),
    "the second killed": (
        "os.kill(os.getpid(), 9) if rank else wait_for_ever()",
        (3, LOST.format(1, 2, "signal SIGKILL")),
        "",
    ),
    "the second killed, which the first notices": (
        (
            "os.kill(os.getpid(), 9) if rank and wait_until_said() else (say('one is lost'), said.touch(),"
            " sys.exit(3))"
        ),
        (3, LOST.format(1, 2, "signal SIGKILL")),
        "one is lost\n",
    ),
    "the first crashed, which the second notices": (
        "sys.exit(3 if rank else 'crash')",
        (1, LOST.format(0, 2, "status 1")),
        "crash\n",
    ),
    "out of touch": ("say(f'{rank} waited'); sys.exit(3)", (3, None), "0 waited\n"),
    "stopped": ("say('stopped'); sys.exit(130)", (130, None), "stopped\n"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_status_and_the_words_are_those_of_the_process_to_blame(case, widenet, capfd):
    code, expected, said = ENDS[case]
    widenet(code)
    assert launch(2, ["some", "words"]) == expected
    assert sorted(capfd.readouterr().err.splitlines()) == sorted(said.splitlines())


def test_each_process_knows_its_group_and_its_words(widenet, capfd):
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"]
    widenet(
        f"os.write(1, ' '.join([*(os.environ[name] for name in {names}), *sys.argv[1:]]).encode() + b'|')"
    )
    launch(3, ["train", "--quiet"])
    found = sorted(capfd.readouterr().out.split("|"))
    assert found == ["", *(f"{rank} {rank} 3 3 127.0.0.1 train --quiet" for rank in range(3))]


COMMAND = (
    "from widenet.parallel import launch; launch.SAVE_SECONDS, launch.STOP_SECONDS = {}, {};"
    " print(*launch.launch(2, []))"
)


def command(save_seconds=300, stop_seconds=300):
    """A command that launches two processes from this directory, in a process of its own; and those two, once
    both have said that they run.
    """
    process = Conversation([], COMMAND.format(save_seconds, stop_seconds))
    children = [int(process.stdout.readline()) for _ in range(2)]
    return process, [os.pidfd_open(child) for child in children]


def left(children):
    return [child for child in children if not select.select([child], [], [], HANG_SECONDS)[0]]


RUNS = "get_ready(); say(os.getpid(), sys.stdout)\n"
STOPS = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))\n"


@pytest.mark.parametrize(
    "code",
    [STOPS + RUNS, "if rank == 0:\n    " + STOPS + RUNS],
    ids=["which they handle", "which one handles"],
)
def test_sigterm_goes_to_every_process(code, widenet):
    widenet(code + "wait_for_ever()")
    process, children = command()
    process.terminate()
    out, _ = process.communicate(timeout=HANG_SECONDS)
    assert out == "130 None\n"
    assert left(children) == []


NOT_READY = """
say(os.getpid(), sys.stdout)
time.sleep(1)
say("ready", sys.stdout)
get_ready()
wait_for_ever()
"""


def test_ctrl_c_waits_until_a_process_is_ready_for_it(widenet):
    widenet(NOT_READY)
    process, children = command()
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=HANG_SECONDS)
    assert out == "ready\nready\n130 None\n"
    assert left(children) == []


SECOND_STUCK = """
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN if rank else lambda *_: os._exit(130))
get_ready()
say(os.getpid(), sys.stdout)
while True:
    wait_for_ever()
"""


@pytest.mark.parametrize("again", [False, True])
def test_a_process_that_is_stuck_after_ctrl_c_is_killed_after_a_while_or_at_the_second_one(again, widenet):
    widenet(SECOND_STUCK)
    process, children = command(save_seconds=10**6 if again else 1, stop_seconds=0)
    os.kill(process.pid, signal.SIGINT)
    if again:
        select.select(children, [], [])  # the first has answered
        os.kill(process.pid, signal.SIGINT)
    out, said = process.communicate(timeout=HANG_SECONDS)
    assert (out, said) == ("130 process 1 of 2 did not end and was killed.\n", "")
    assert left(children) == []


def test_a_stopped_process_is_killed_when_the_others_have_ended(widenet, monkeypatch):
    monkeypatch.setattr("widenet.parallel.launch._GRACE_SECONDS", 1.0)
    widenet("os.kill(os.getpid(), signal.SIGSTOP) if rank else sys.exit(3)")
    assert launch(2, []) == (3, "process 1 of 2 did not end and was killed.")


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_ctrl_z_pauses_every_process_until_the_command_continues(widenet):
    widenet("say(os.getpid(), sys.stdout)\nwhile True: wait_for_ever()")
    process, children = command()
    pids = [
        process.pid,
        *(
            int(re.search(r"Pid:\t(\d+)", Path(f"/proc/self/fdinfo/{child}").read_text())[1])
            for child in children
        ),
    ]
    for number, paused in ((signal.SIGTSTP, True), (signal.SIGCONT, False)):
        os.kill(process.pid, number)
        while [state(pid) == "T" for pid in pids] != [paused] * 3:
            pass
    for child in children:
        signal.pidfd_send_signal(child, signal.SIGKILL)
    process.communicate()


REAL = f"del sys.modules['widenet']; sys.path[0] = {ROOT!r}\n"
"""Within a stand-in: from here on the real `widenet`."""
FOLLOWS = REAL + "from widenet.parallel.launch import end_with_launcher; end_with_launcher()\n"


def test_processes_get_sigterm_when_the_command_is_killed(widenet):
    widenet(FOLLOWS + RUNS + "wait_for_ever()")
    process, children = command()
    process.kill()
    assert left(children) == []
    process.communicate()
