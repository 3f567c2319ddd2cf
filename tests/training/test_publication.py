"""Publishing: a new checkpoint is there whole or the earlier one stays, whatever fails, waits or is killed
meanwhile.
"""

import errno
import os
import shutil
import signal
import time
from itertools import chain, repeat
from pathlib import Path

import pytest
from torch import distributed

from tests.parallel.workers import Group, exchange
from tests.training.test_checkpoint import network
from widenet.errors import CheckpointError, GroupError
from widenet.stores import durable
from widenet.training import checkpoint
from widenet.training.checkpoint import Checkpoint, fingerprint, publish
from widenet.training.run_path import recover

SHARDS = 4
POINTS = {
    "folder": 0,
    "file of 0": 0,
    "file of 1": 1,
    "manifest": 0,
    "first name": 0,
    "second name": 0,
    "names on disk": 0,
}
"""The moments of a publication at which something may fail, and the process that is then at work."""


@pytest.fixture
def saved(tmp_path):
    return publish(tmp_path / "saved", network(), {"epoch": 1}, with_state=True).path


def test_all_of_a_checkpoint_is_on_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    synced, rename = [], Path.rename
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink()) or fsync(file)
    )
    seen = {}
    monkeypatch.setattr(
        Path,
        "rename",
        lambda path, to: seen.update({path: ({*path.iterdir(), path}, list(synced))}) or rename(path, to),
    )
    publish(tmp_path / "saved", network(), {}, with_state=True)
    ((there, forced),) = seen.values()
    assert there <= set(forced)
    assert len(there) == 1 + 1 + 1 + 3 * 3
    assert synced[-1] == tmp_path


class Point:
    """Does something at one moment of a checkpoint, in one process; in the others everything that touches
    files takes a while.
    """

    def __init__(self, point, act, slow_seconds=0.01):
        self.point, self.act, self.slow_seconds = point, act, slow_seconds
        self.here = distributed.get_rank() == POINTS[point]
        self.names = chain(("first name", "second name"), repeat("earlier name again"))
        self.whole = {}

    def passes(self, point):
        if self.here and point == self.point:
            self.act()
        elif not self.here:
            time.sleep(self.slow_seconds)

    def __enter__(self):
        mkdir, write_text, rename, rmtree = Path.mkdir, Path.write_text, Path.rename, shutil.rmtree
        write, force = checkpoint.write, durable.force_to_disk
        self.replace(
            Path, "mkdir", lambda path, *how, **more: (self.passes("folder"), mkdir(path, *how, **more))
        )
        self.replace(
            Path,
            "write_text",
            lambda path, *how, **more: (self.passes("manifest"), write_text(path, *how, **more)),
        )
        self.replace(Path, "rename", lambda path, to: (self.passes(next(self.names)), rename(path, to)))
        self.replace(shutil, "rmtree", lambda path, **how: (self.passes("removal"), rmtree(path, **how)))
        own = f"file of {distributed.get_rank()}"
        self.replace(checkpoint, "write", lambda path, tensors: (write(path, tensors), self.passes(own))[0])
        self.replace(
            durable,
            "force_to_disk",
            lambda path: (path.name[0] == "." or self.passes("names on disk"), force(path))[1],
        )

    def replace(self, owner, name, value):
        self.whole[owner, name] = getattr(owner, name)
        setattr(owner, name, value)

    def __exit__(self, *_):
        for (owner, name), value in self.whole.items():
            setattr(owner, name, value)


def full():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def published(path, seed, point=None, act=None):
    """Publish a network of a seed in every process of a group; its fingerprint."""
    built = network(seed=seed, shards=SHARDS, exchange=exchange(SHARDS))
    known = fingerprint(built)
    if point is None:
        publish(path, built, {}, with_state=True)
    else:
        with Point(point, act):
            publish(path, built, {}, with_state=True)
    return known


def whole(path):
    """The fingerprint of a checkpoint of which every file has been read."""
    built = network(seed=99, shards=SHARDS)
    Checkpoint.open(path).load_into(built, with_state=True)
    return fingerprint(built)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with Group(2, tmp_path_factory.mktemp("pair")) as group:
        yield group


@pytest.mark.parametrize("point", POINTS)
def test_a_failure_at_any_moment_leaves_one_whole_checkpoint_and_all_processes_say_why(point, pair, tmp_path):
    path = tmp_path / "saved"
    earlier, _ = pair(published, path, 1)
    pair.start(published, path, 2, point, full)
    first, second = pair.outcomes()
    assert type(first) is type(second) is CheckpointError
    assert (first.place, str(first)) == (str(path), str(second))
    later, _ = pair(published, tmp_path / "later", 2)
    assert whole(path) == (later if point == "names on disk" else earlier)
    recover(tmp_path)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["later", "saved"]
    assert pair(published, path, 3)[0] == whole(path)


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_at_any_moment_leaves_one_whole_checkpoint(point, tmp_path):
    path = tmp_path / "run" / "saved"
    earlier, later = published_alone(path, 1), published_alone(tmp_path / "later", 2)
    with Group(2, tmp_path) as group:
        group.start(published, path, 2, point, killed)
        outcomes = group.outcomes()
    assert {type(outcome) for outcome in outcomes} == {EOFError, GroupError}
    recover(path.parent)
    assert whole(path) == (later if point == "names on disk" else earlier)
    assert [found.name for found in path.parent.iterdir()] == ["saved"]


def published_apart(folder, seed):
    """Publish in a group of which each process has a folder of its own, as on machines that share none."""
    return published(folder / f"machine {distributed.get_rank()}" / "saved", seed)


def test_machines_without_a_common_folder_replace_no_checkpoint_by_a_part_of_one(pair, tmp_path):
    earlier = published_alone(tmp_path / "machine 0" / "saved", 1)
    shutil.copytree(tmp_path / "machine 0", tmp_path / "machine 1")
    pair.start(published_apart, tmp_path, 2)
    assert [type(outcome) for outcome in pair.outcomes()] == [CheckpointError] * 2
    for folder in tmp_path.iterdir():
        assert whole(folder / "saved") == earlier
        assert [found.name for found in folder.iterdir()] == ["saved"]


def published_alone(path, seed):
    built = network(seed=seed, shards=SHARDS)
    publish(path, built, {}, with_state=True)
    return fingerprint(built)


def test_recovery_takes_back_what_was_about_to_be_replaced_and_drops_the_unfinished(tmp_path):
    for name in (".best.old", ".model.old", "model", ".model.123.partial", "epoch-00001", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    (tmp_path / ".latest.0123abcd.partial").write_text("half")
    (tmp_path / ".lock").touch()
    recover(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".git",
        ".lock",
        "best",
        "epoch-00001",
        "model",
    ]
    assert (tmp_path / "best" / "file").read_text() == ".best.old"
    assert (tmp_path / "model" / "file").read_text() == "model"
    recover(tmp_path / "nowhere")
