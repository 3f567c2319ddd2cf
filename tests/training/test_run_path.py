"""The lock of a run: one training holds it, and who only looks at it stops none."""

import fcntl
from concurrent.futures import ThreadPoolExecutor

import pytest

from widenet.errors import CheckpointError
from widenet.training.run_path import is_locked, locked


def test_a_run_is_locked_while_it_is_trained(tmp_path):
    assert not is_locked(tmp_path)
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(CheckpointError, match="is being trained by another process"), locked(tmp_path):
            pass
    assert not is_locked(tmp_path)


def test_looking_at_the_lock_stops_no_training(tmp_path):
    (tmp_path / ".lock").touch()

    def train():
        with locked(tmp_path):
            return is_locked(tmp_path)

    with (tmp_path / ".lock").open() as looking, ThreadPoolExecutor(1) as pool:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not is_locked(tmp_path)
        training = pool.submit(train)
        fcntl.flock(looking, fcntl.LOCK_UN)
        assert training.result()
