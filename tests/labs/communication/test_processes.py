"""Two real processes send the bytes that arithmetic counts."""

import pytest

from labs.communication.arithmetic import Exchange, autoencoder, sent_bytes, ways
from labs.communication.processes import measured

STEPS = [
    [Exchange("sum", 200_000), Exchange("gather", 60_000)],
    [Exchange("scatter", 400_000), Exchange("sum", 100_000, 8)],
    ways(autoencoder(5_000, 128, 256), 2)["widenet"],
]


def test_the_bytes_that_leave_a_process_are_the_counted_ones():
    for exchanges, step in zip(STEPS, measured(STEPS, rounds=3), strict=True):
        # The kernel counts them for the sockets; gloo adds headers.
        assert step.sent_bytes == pytest.approx(sent_bytes(exchanges, 2), rel=0.02)
        assert 0 < step.seconds < 60
