"""`--processes` and mpirun: words, numbers and files of one process; nothing is lost when one is killed."""

import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parallel.copied import children, command
from tests.parallel.workers import commanded
from tests.trainings import outcome
from widenet.cli import main
from widenet.data.lists import dataset_from_lists
from widenet.runs import Model, train

WIDTH, EXAMPLES = 23, 12
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "denoise": 0.3},
        {"name": "taste", "units": 4, "activation": "tanh", "dropout": 0.3},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
SHORT = {"epochs": 2, "batch_size": 6, "optimizer": "momentum", "evaluation": {"metric": "recall@3"}}
LONG = {"epochs": 110, "batch_size": EXAMPLES, "shards": 2, "optimizer": "momentum"}
LONG["checkpoints"] = {"every_epochs": 30}
"""So many epochs that their lines do not fit a pipe of PIPE_BYTES: a training that nobody listens to
cannot end.
"""
PIPE_BYTES, LIMIT_SECONDS = 4096, 30


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with documents, a dataset, and what one process gives for each training: {name:
    (fingerprint, log)}.
    """
    folder = tmp_path_factory.mktemp("processes")
    rows = [
        sorted({(example * 5 + step * step) % WIDTH for step in range(2 + example % 4)})
        for example in range(EXAMPLES)
    ]
    parts = {"validation": [[example % WIDTH] for example in range(EXAMPLES)], "heldout": [[1]] * EXAMPLES}
    dataset_from_lists(folder / "data", rows, **parts, width=WIDTH)
    (folder / "network.json").write_text(json.dumps(NETWORK))
    for name, training in (("short", SHORT), ("long", LONG)):
        (folder / f"{name}.json").write_text(json.dumps(training))
        train(NETWORK, training, folder / "data", folder / f"one-{name}")
    return folder


def words(training="short", out="run", **options):
    documents = ["network.json", f"{training}.json"]
    where = ["--data", "data", "--out", str(out)]
    return ["train", *documents, *where, *options.get("more", ["--processes", "2"])]


def started(place, command, mpirun=()):
    environment = {
        name: value for name, value in os.environ.items() if name not in ("WIDENET_DEBUG", "WIDENET_THREADS")
    }
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONWARNINGS": "error:::widenet"}
    line = [*mpirun, sys.executable, "-m", "widenet", *command]
    return subprocess.Popen(
        line, cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )


def ended(process, limit=3 * LIMIT_SECONDS):
    """Status, standard output and standard error, once every process that could write to them is gone."""
    try:
        out, err = process.communicate(timeout=limit)
    finally:
        process.kill()
    return process.returncode, *(text if isinstance(text, str) else text.decode() for text in (out, err))


def test_two_processes_train_the_bits_of_one_and_speak_once(place):
    run = place / "two"
    status, out, err = ended(started(place, words(out=run)))
    assert outcome(run) == outcome(place / "one-short")
    assert (status, out) == (0, f"{run}: trained. Fingerprint {Model.load(run).fingerprint()}\n")
    first, second, report, following = err.splitlines()
    assert re.match(r"epoch 1/2  loss ", first)
    assert re.match(r"epoch 2/2  loss ", second)
    assert report == f"Report: {run}/report.html"
    assert following.startswith(f"Next: widenet predict {run} ")


def test_two_processes_predict_as_one(place, widenet, groups, launched, monkeypatch):
    monkeypatch.chdir(place)
    line = ["predict", "one-short", "--data", "data", "-k", "5", "--out"]
    alone = widenet(*line, "one.csv")
    said = alone.out.replace("one.csv", "two.csv")
    assert groups(2)(commanded, [*line, "two.csv"], place) == [(0, said, ""), (0, "", "")]
    assert (place / "two.csv").read_bytes() == (place / "one.csv").read_bytes()
    assert widenet(*line, "three.csv", "--processes", "2").status == 0
    assert launched == [(2, [*line, "three.csv", "--processes", "2"])]


def test_a_mistake_that_every_process_makes_is_said_once(place):
    status, out, said = ended(started(place, words(out="one-short")))
    assert (status, out, said.count("\n"), said.startswith("widenet: one-short")) == (2, "", 1, True)


@pytest.mark.parametrize(
    "line",
    [
        ["data/dataset.json", "--data", "data"],
        ["network.json", "--data", "nowhere"],
        ["network.json", "--data", "data", "--processes", "9"],
    ],
    ids=["document", "dataset", "number"],
)
def test_a_mistake_is_found_before_any_process_is_started(line, place, widenet, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setattr("widenet.parallel.launch.launch", None)
    found = widenet("train", "--processes", "2", *line, "short.json", "--out", "run")
    assert (found.status, found.out, found.err.count("\n")) == (2, "", 1)


class JoinsError(Exception):
    """A process has gone to join its group."""


def test_a_process_of_a_group_starts_no_others(widenet, place, monkeypatch):
    def join(*_):
        raise JoinsError

    monkeypatch.chdir(place)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("widenet.parallel.launch.launch", None)
    monkeypatch.setattr("widenet.runs.training.join", join)
    for more in ([], ["--processes", "2"]):
        with pytest.raises(JoinsError):
            main(words(more=more))
    found = widenet(*words(more=["--processes", "4"]))
    assert (found.status, found.err.startswith("widenet: --processes must ")) == (2, True)


def under_mpi(rank):
    values = {"RANK": rank, "SIZE": "3", "LOCAL_RANK": rank, "LOCAL_SIZE": "3"}
    return {f"OMPI_COMM_WORLD_{name}": value for name, value in values.items()}


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"LOCAL_RANK": "0"}, 1),
        ({"LOCAL_RANK": "1"}, 0),
        ({"SLURM_LOCALID": "1"}, 0),
        ({"LOCAL_RANK": "1", "WIDENET_LAUNCHER": "9"}, 1),
        (under_mpi("0"), 1),
        (under_mpi("2"), 0),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "line", [["evaluate", "nowhere", "--data", "data"], ["evaluate", "--nonsense"]], ids=["mistake", "usage"]
)
def test_of_the_processes_of_a_machine_the_first_says_what_all_would(
    environment, said, line, widenet, place, monkeypatch
):
    monkeypatch.chdir(place)
    monkeypatch.setattr("widenet.cli.processes._FIRST_SECONDS", 0.0)
    monkeypatch.setattr("widenet.parallel.launch.end_with_launcher", lambda: None)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGTERM)
    found = widenet(*line)
    signal.signal(signal.SIGTERM, before)
    assert (found.status, found.err.count("\n")) == (2, said)


def test_a_group_on_several_machines_needs_an_address(widenet, place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setattr("widenet.parallel.launch.end_with_launcher", lambda: None)
    for name, value in (under_mpi("1") | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}).items():
        monkeypatch.setenv(name, value)
    found = widenet(*words(more=[]))
    assert found.out == ""
    assert found.err.startswith("widenet: environment variable MASTER_ADDR: ")


MPIRUN = {
    "Open MPI": ("mpirun.openmpi", ["--oversubscribe", "--bind-to", "none", "-np", "3"]),
    "MPICH": ("mpiexec.hydra", ["-n", "3"]),
}


@pytest.mark.parametrize("library", MPIRUN)
def test_three_processes_that_mpirun_starts_train_the_bits_of_one_and_speak_once(library, place, monkeypatch):
    program, options = MPIRUN[library]
    mpirun = shutil.which(program)
    if mpirun is None:
        pytest.skip(f"{program} of {library} is not installed")
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    out = place / f"three-{library}"
    status, shown, err = ended(started(place, words(out=out, more=[]), mpirun=[mpirun, *options]), limit=600)
    # Open MPI makes a terminal of it, and LLVM resets its colours at the end.
    shown = shown.replace("\x1b[0m", "")
    assert (status, shown) == (0, f"{out}: trained. Fingerprint {Model.load(out).fingerprint()}\n"), err
    assert outcome(out) == outcome(place / "one-short")
    assert [line.split()[0] for line in err.splitlines()] == ["epoch", "epoch", "Report:", "Next:"]


class Long:
    """A long training in two processes, stopped by what the test does not read: it is in the midst of its
    epochs, after some of them.
    """

    def __init__(self, place, out):
        self.out = place / out
        with contextlib.chdir(place):
            self.process = command(words("long", out))
        fcntl.fcntl(self.process.stderr, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        while not (line := self._line()).startswith("epoch   6/"):
            assert line
        self.children = {rank: os.pidfd_open(child) for rank, child in enumerate(children(self.process))}
        assert sorted(self.children) == [0, 1]

    def _line(self):
        """The next line, and nothing of what follows it."""
        line = b""
        while not line.endswith(b"\n") and (letter := os.read(self.process.stderr.fileno(), 1)):
            line += letter
        return line.decode()

    def left(self, wait_seconds):
        """The ranks that still run after so long."""
        return [
            rank
            for rank, child in self.children.items()
            if not select.select([child], [], [], wait_seconds)[0]
        ]

    def go_on(self, place):
        """The outcome after a resumption in one process."""
        train(NETWORK, LONG, place / "data", self.out, resume=True)
        return outcome(self.out)


def test_sigterm_saves_ends_every_process_and_says_once_how_to_go_on(place):
    long = Long(place, "stopped")
    long.process.terminate()
    status, out, err = ended(long.process, LIMIT_SECONDS)
    again = "widenet train network.json long.json --data data --out stopped --processes 2 --resume"
    assert (status, out) == (130, "")
    assert [line for line in err.splitlines() if not line.startswith("epoch ")] == [
        "Stopped; stopped holds a checkpoint. Resume with:",
        f"  {again}",
    ]
    assert long.left(0) == []
    assert long.go_on(place) == outcome(place / "one-long")


def test_where_a_process_is_killed_the_command_names_it_and_leaves_none_running(place):
    long = Long(place, "killed")
    signal.pidfd_send_signal(long.children[1], signal.SIGKILL)
    status, out, err = ended(long.process, LIMIT_SECONDS)
    assert (status, out) == (3, "")
    said = [line for line in err.splitlines() if not line.startswith("epoch ")]
    assert said.pop() == "widenet: process 1 of 2 was lost (signal SIGKILL)."
    assert all(
        re.match("widenet: process 0 of 2, .+: another process of the group was lost", line) for line in said
    )
    assert long.left(0) == []
    assert long.go_on(place) == outcome(place / "one-long")
