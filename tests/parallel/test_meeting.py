"""Processes of one mpirun find one store, and those of another mpirun another one."""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from widenet.parallel.meeting import store_of_this_launch

SIZE, LIMIT = 3, timedelta(seconds=60)


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Makes the next meeting one of a launcher of some name."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return lambda name: monkeypatch.setattr("widenet.parallel.meeting.launcher_here", lambda: name)


def met():
    """The stores that the processes of a launch are given, the first one last to ask."""
    with ThreadPoolExecutor(SIZE) as pool:
        asked = [pool.submit(store_of_this_launch, rank, SIZE, LIMIT) for rank in (2, 1, 0)]
        return [each.result() for each in reversed(asked)]


def test_the_processes_of_a_launch_share_a_store_and_leave_no_file(launched, tmp_path):
    launched("1-1")
    for _ in range(2):
        first, *others = met()
        first.set("word", "heard")
        assert [store.get("word") for store in others] == [b"heard"] * 2
        assert list(tmp_path.iterdir()) == []


def test_two_launches_do_not_meet(launched):
    launched("1-1")
    one = met()
    launched("2-1")
    other = met()
    one[0].set("word", "of one")
    other[0].set("word", "of the other")
    assert [stores[2].get("word") for stores in (one, other)] == [b"of one", b"of the other"]
    assert one[0].port != other[0].port


def test_a_process_waits_no_longer_than_it_was_told_for_the_first(launched):
    launched("1-1")
    with pytest.raises(RuntimeError, match="Timeout waiting for key: port"):
        store_of_this_launch(1, 2, timedelta(seconds=1))
