"""Every test of this room computes as training does: one thread an operation."""

import pytest

from widenet.parallel.exchange import one_thread_an_operation


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread_an_operation():
        yield
