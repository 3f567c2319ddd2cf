"""Checkpoints within epochs: taken when due, written while the training goes on, published whole, resumed
to the same bits.
"""

import errno
import os
import signal
import threading
from concurrent.futures import wait

import pytest
from torch import distributed

from tests.mistakes import mistake
from tests.parallel.workers import Group
from tests.trainings import SETTINGS, STEPS, books, outcome
from widenet.errors import CheckpointError, GroupError
from widenet.runs import Silence, train
from widenet.training import checkpoint
from widenet.training.loop import Saving


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data").path


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    """The outcome of each setting with checkpoints between epochs alone, trained once."""
    known = {}

    def get(name):
        if name not in known:
            out = tmp_path_factory.mktemp("undisturbed") / "run"
            train(*SETTINGS[name], data, out)
            known[name] = outcome(out)
        return known[name]

    return get


def saving_often(name, **checkpoints):
    """A setting whose document asks for checkpoints within epochs."""
    network, training = SETTINGS[name]
    return network, {
        **training,
        "checkpoints": {"min_seconds": 0, "keep_last": 99, **training.get("checkpoints", {}), **checkpoints},
    }


def at(epoch, step):
    return f"epoch-{epoch:05d}-step-{step:09d}"


def saved(run):
    """The checkpoints of a run, and what is being written."""
    return sorted(path.name for path in (run / "checkpoints").glob("*") if path.name != "latest")


class Watch(Silence):
    """Does something at every step, by its number in the training; "a crash" is raised at one of them."""

    def __init__(self, crash_at=None, act=None):
        self.crash_at, self.act, self.steps, self.said = crash_at, act or (lambda _: None), 0, []

    def say(self, text):
        self.said.append(text)

    def advance(self, *_):
        self.steps += 1
        self.act(self.steps)
        if self.steps == self.crash_at:
            raise RuntimeError("a crash")


def writes_in_time(own):
    """Stands for `Saving.is_writing`: the thread is always done by then, so that every run of a test has
    the same checkpoints.
    """
    if own.work is not None:
        wait([own.work])
    return False


@pytest.fixture
def in_time(monkeypatch):
    monkeypatch.setattr(Saving, "is_writing", writes_in_time)


DIFFERENT = ("adam, tied", "momentum, sampled", "adam, split", "momentum, on the input")
"""Settings whose checkpoints hold all that those of others do; tests/test_runs.py resumes every one."""


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("name", DIFFERENT)
def test_a_training_that_crashes_within_an_epoch_goes_on_there_to_the_same_bits(
    name, data, undisturbed, tmp_path
):
    out, documents = tmp_path / "run", saving_often(name, every_steps=2)
    with pytest.raises(RuntimeError, match="a crash"):
        train(*documents, data, out, report=Watch(crash_at=2 * STEPS))
    newest = (out / "checkpoints" / "latest").read_text().strip()
    assert at(1, 0) < newest < at(2, 0)
    assert saved(out)[-1] == newest
    train(*documents, data, out, resume=True)
    assert outcome(out) == undisturbed(name)


@pytest.mark.usefixtures("in_time")
def test_checkpoints_are_taken_every_so_many_steps_of_the_training_and_where_epochs_end(data, tmp_path):
    train(*saving_often("momentum", every_steps=4), data, tmp_path / "run")
    assert saved(tmp_path / "run") == [at(0, 4), at(1, 0), at(1, 3), at(2, 0), at(2, 2), at(3, 0)]


class SlowDisk:
    """A disk that writes no file until it is let go."""

    def __init__(self, monkeypatch):
        self.go, self.write = threading.Event(), checkpoint.write
        monkeypatch.setattr(checkpoint, "write", self.slowly)

    def slowly(self, path, tensors):
        assert self.go.wait(60)
        return self.write(path, tensors)


@pytest.mark.parametrize("name", ["adam, tied", "rmsprop, sampled"])
def test_what_is_written_is_the_state_of_its_own_step_however_long_that_takes(
    name, data, undisturbed, tmp_path, monkeypatch
):
    out, disk, seen = tmp_path / "run", SlowDisk(monkeypatch), []
    documents = saving_often(name, every_epochs=9, every_steps=2)

    def watch(step):
        seen.append(saved(out))
        if step == STEPS:
            disk.go.set()

    with pytest.raises(RuntimeError, match="a crash"):
        train(*documents, data, out, report=Watch(STEPS + 1, watch))
    assert [[path for path in paths if path[0] != "."] for paths in seen] == [[]] * STEPS + [[at(0, 2)]]
    assert saved(out) == [at(0, 2)]
    train(*documents, data, out, resume=True)
    assert outcome(out) == undisturbed(name)


@pytest.mark.usefixtures("in_time")
def test_a_full_disk_in_the_background_ends_the_training_at_the_next_step(
    data, undisturbed, tmp_path, monkeypatch
):
    out, documents, write = tmp_path / "run", saving_often("momentum", every_steps=3), checkpoint.write

    def failing(path, tensors):
        if at(1, 2) in path.parent.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, tensors)

    watch = Watch()
    monkeypatch.setattr(checkpoint, "write", failing)
    with mistake(CheckpointError, place=at(1, 2)):
        train(*documents, data, out, report=watch)
    # Step 7 publishes that of the first epoch's end and begins the next one.
    assert watch.steps == 8
    assert saved(out) == [at(0, 3), at(1, 0)]
    monkeypatch.setattr(checkpoint, "write", write)
    train(*documents, data, out, resume=True)
    assert outcome(out) == undisturbed("momentum")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with Group(2, tmp_path_factory.mktemp("pair")) as found:
        yield found


def documents_of(name, **checkpoints):
    network, training = saving_often(name, **checkpoints)
    return network, {**training, "shards": 2}


def trained(name, data, out, act=None, resume=False, **checkpoints):
    """Train in every process of a group; `act` is called at every step with its number."""
    Saving.is_writing = writes_in_time
    steps = iter(range(1, 999))

    def interrupted():
        if act is not None:
            act(next(steps))
        return False

    return train(
        *documents_of(name, **checkpoints), data, out, resume=resume, interrupted=interrupted
    ).fingerprint()


def is_killed(step):
    if distributed.get_rank() == distributed.get_world_size() - 1 and step == 2 * STEPS + 1:
        os.kill(os.getpid(), signal.SIGKILL)


def trained_and_killed(name, data, out):
    return trained(name, data, out, is_killed, every_steps=2)


def resumed(name, data, out):
    return trained(name, data, out, resume=True, every_steps=2)


CUT_SHORT = [(1, "momentum"), (1, "adam, split"), (2, "adam, tied")]


@pytest.mark.parametrize(("size", "name"), CUT_SHORT)
def test_processes_of_which_one_is_killed_within_an_epoch_go_on_there(size, name, data, pair, tmp_path):
    out = tmp_path / "run"
    expected = train(*documents_of(name), data, tmp_path / "undisturbed").fingerprint()
    with Group(size, tmp_path) as lost:
        lost.start(trained_and_killed, name, data, out)
        assert {type(found) for found in lost.outcomes()} == {EOFError, *[GroupError][: size - 1]}
    newest = (out / "checkpoints" / "latest").read_text().strip()
    assert at(1, 0) < newest < at(2, 0)
    assert pair(resumed, name, data, out) == [expected] * 2
