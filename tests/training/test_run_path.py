"""The lock of a run: one training holds it, and who only looks at it stops none."""

import fcntl
from pathlib import Path

import pytest

from tests.mistakes import mistake
from widenet.errors import CheckpointError
from widenet.training.run_path import DOCUMENTS, check, is_locked, locked


def test_a_command_is_refused_a_run_in_training_or_with_weights(tmp_path):
    check(tmp_path / "new", (), overwrite=False)
    for name in DOCUMENTS:
        (tmp_path / name).touch()
    check(tmp_path, (), overwrite=False)
    with locked(tmp_path), mistake(CheckpointError):
        check(tmp_path, (), overwrite=False)
    (tmp_path / "model").mkdir()
    with mistake(CheckpointError):
        check(tmp_path, (), overwrite=False)


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_current_directory_is_no_new_run(overwrite):
    with mistake(CheckpointError, option="out"):
        check(Path(), (), overwrite=overwrite)


def test_what_a_killed_process_has_left_is_not_nothing(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".other.old").touch()
    with mistake(CheckpointError):
        check(tmp_path / "new", (), overwrite=False)


def test_looking_at_the_lock_stops_no_training(tmp_path, monkeypatch):
    (tmp_path / ".lock").touch()
    lock, refused = fcntl.flock, []

    def flock(file, operation):
        try:
            lock(file, operation)
        except BlockingIOError:
            refused.append(operation)
            lock(looking, fcntl.LOCK_UN)  # an instant later, whoever looked has gone
            raise

    with (tmp_path / ".lock").open() as looking:
        lock(looking, fcntl.LOCK_SH)
        assert not is_locked(tmp_path)
        monkeypatch.setattr(fcntl, "flock", flock)
        with locked(tmp_path):
            assert refused == [fcntl.LOCK_EX | fcntl.LOCK_NB]
