"""The lock of a run: one training holds it, and who only looks at it stops none."""

import fcntl
from pathlib import Path

import pytest

from tests.mistakes import mistake
from widenet.errors import CheckpointError
from widenet.training.run_path import check, is_locked, locked


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_current_directory_is_no_new_run(overwrite):
    with mistake(CheckpointError, option="out"):
        check(Path(), (), overwrite=overwrite)


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
