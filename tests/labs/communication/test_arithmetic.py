"""Bytes of the ways to divide a network, against numbers known elsewhere."""

import pytest

from labs.communication.arithmetic import Exchange, alexnet, autoencoder, num_weights, sent_bytes, ways
from widenet.plan.job import Job
from widenet.plan.work import work


def sent(layout, processes):
    return {way: sent_bytes(exchanges, processes) for way, exchanges in ways(layout, processes).items()}


def test_alexnet_has_its_published_number_of_weights():
    assert num_weights(alexnet(128)) == 62_378_344


def test_two_processes_of_a_ring_send_half_of_it_twice():
    assert [Exchange("sum", 25).sent_bytes(processes) for processes in (2, 4)] == [100, 150]
    assert [Exchange(kind, 25, 8).sent_bytes(4) for kind in ("gather", "scatter")] == [150, 150]


def test_data_parallel_bytes_grow_with_the_width_and_those_of_widenet_do_not():
    narrow, wide = (sent(autoencoder(width, 128, 256), 2) for width in (10_000, 1_000_000))
    assert wide["data-parallel"] == pytest.approx(100 * narrow["data-parallel"], rel=0.01)
    assert wide["widenet"] == narrow["widenet"]
    assert 2 * 8 * 256 * 128 <= narrow["widenet"] <= 1.1 * 2 * 8 * 256 * 129
    assert "hybrid of 2014" not in narrow


@pytest.mark.parametrize("processes", [2, 8])
def test_widenets_exchanges_have_the_bytes_of_its_plan(processes):
    layout = alexnet(128)
    plan = work(Job.of(layout, num_processes=processes))
    assert sent(layout, processes)["widenet"] == pytest.approx(plan.sent_bytes, abs=1)


def test_the_hybrid_of_2014_sends_less_than_either_way_alone():
    found = sent(alexnet(128), 8)
    assert found["hybrid of 2014"] < found["widenet"] < found["data-parallel"]
    filters, inputs = 3_747_200 + 2 * 4096, 9216 + 4096 + 4096  # with the biases of two full layers
    assert found["hybrid of 2014"] == 4 * (2 * 7 / 8 * filters + 2 * 7 / 8 * 128 * inputs)
