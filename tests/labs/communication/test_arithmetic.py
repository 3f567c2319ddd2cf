"""Bytes of the ways to divide a network, against numbers known elsewhere."""

import pytest

from labs.communication.arithmetic import alexnet, sent_bytes, ways
from widenet.plan.layout import Job
from widenet.plan.memory import work


def sent(layout, processes):
    return {way: sent_bytes(exchanges, processes) for way, exchanges in ways(layout, processes).items()}


@pytest.mark.parametrize("processes", [2, 8])
def test_widenets_exchanges_have_the_bytes_of_its_plan(processes):
    layout = alexnet(128)
    plan = work(Job(layout, num_processes=processes))
    assert sent(layout, processes)["widenet"] == pytest.approx(plan.sent_bytes, abs=1)
