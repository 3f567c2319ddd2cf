"""Bytes of the ways to divide a network, against numbers known elsewhere."""

import pytest

from labs.communication.arithmetic import alexnet, autoencoder, sent_bytes, ways
from widenet.plan.layout import Job
from widenet.plan.memory import work


def sent(layout, processes):
    return {way: sent_bytes(exchanges, processes) for way, exchanges in ways(layout, processes).items()}


def test_data_parallel_bytes_grow_with_the_width_and_those_of_widenet_do_not():
    narrow, wide = (sent(autoencoder(width, 128, 256), 2) for width in (10_000, 1_000_000))
    assert wide["data-parallel"] == pytest.approx(100 * narrow["data-parallel"], rel=0.01)
    assert wide["widenet"] == narrow["widenet"]
    assert 2 * 8 * 256 * 128 <= narrow["widenet"] <= 1.1 * 2 * 8 * 256 * 129
    assert "hybrid of 2014" not in narrow


@pytest.mark.parametrize("processes", [2, 8])
def test_widenets_exchanges_have_the_bytes_of_its_plan(processes):
    layout = alexnet(128)
    plan = work(Job(layout, num_processes=processes))
    assert sent(layout, processes)["widenet"] == pytest.approx(plan.sent_bytes, abs=1)
