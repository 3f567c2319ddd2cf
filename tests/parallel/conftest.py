"""Groups of processes that tests of this room share: starting one costs more than most tests."""

import pytest

from tests.parallel.workers import Group


@pytest.fixture(scope="session")
def groups(tmp_path_factory):
    """Gives the group of so many processes, started when first asked for.

    No test may lose one of its processes.
    """
    started = {}

    def of(size):
        if size not in started:
            started[size] = Group(size, tmp_path_factory.mktemp("group"))
        return started[size]

    yield of
    for group in started.values():
        group.close()
