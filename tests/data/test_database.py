"""The database of an ingest: what it says when room runs out, and what it leaves behind."""

import errno
import os

import pytest

from tests.mistakes import mistake
from widenet.data.ingest import Limits, database
from widenet.errors import DataError


def test_a_full_disk_is_refused_in_one_sentence(tmp_path):
    with mistake(DataError, place=tmp_path), database(tmp_path / "scratch", Limits(None, 1)):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_the_system_are_not_renamed(tmp_path):
    with pytest.raises(PermissionError), database(tmp_path / "scratch", Limits(None, 1)):
        raise PermissionError(errno.EACCES, "no")


def test_too_little_memory_is_refused_in_one_sentence(tmp_path):
    with (
        mistake(DataError, option="memory"),
        database(tmp_path / "scratch", Limits(10_000_000, 1)) as connection,
    ):
        connection.execute("SELECT list(range) FROM range(10000000)").fetchall()


def test_an_interruption_that_the_database_names_is_one(tmp_path):
    with pytest.raises(KeyboardInterrupt), database(tmp_path / "scratch", Limits(None, 1)):
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="another"), database(tmp_path / "scratch", Limits(None, 1)):
        raise RuntimeError("another")
