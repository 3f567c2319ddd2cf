"""What holds for every test."""

import gc
import os

import pytest

from tests import unsynced

unsynced.begin()
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
"""Set before torch is loaded: its threads wait without keeping processors busy, which all processes of the
tests share.
"""


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect the tests without looking for garbage, and never look among them: they stay to the end.

    A walk through 13,000 tests and the libraries takes as long as most tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure():
    """Let the libraries end as they would without the tests."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def groups(tmp_path_factory):
    """Gives the group of so many processes, those of an earlier one and new ones; starting one costs more
    than most tests.

    No test may lose one of its processes.
    """
    from tests.parallel.workers import Group

    started = []

    def of(size):
        if not started:
            started.append(Group(size, tmp_path_factory.mktemp("group")))
        return started[0].resized(size)

    yield of
    for group in started:
        group.close()
