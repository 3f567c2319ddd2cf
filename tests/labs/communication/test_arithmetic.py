"""Bytes of the ways to divide a network, against numbers known elsewhere."""

import pytest

from labs.communication.arithmetic import alexnet, autoencoder, gathered, num_weights, ring, sent


def test_alexnet_has_its_published_number_of_weights():
    assert num_weights(alexnet(128)) == 62_378_344


def test_two_processes_of_a_ring_send_half_of_it_twice():
    assert ring(100, 2) == 100
    assert ring(100, 4) == 150
    assert gathered(100, 4) == 75


def test_data_parallel_bytes_grow_with_the_width_and_those_of_widenet_do_not():
    narrow, wide = (sent(autoencoder(width, 128, 256), 2) for width in (10_000, 1_000_000))
    assert wide.data_parallel == pytest.approx(100 * narrow.data_parallel, rel=0.01)
    assert wide.widenet == narrow.widenet
    assert 2 * 8 * 256 * 128 <= narrow.widenet <= 1.1 * 2 * 8 * 256 * 129
    assert narrow.hybrid is None


def test_the_hybrid_of_2014_sends_less_than_either_way_alone():
    found = sent(alexnet(128), 8)
    assert found.hybrid < found.widenet < found.data_parallel
    filters, inputs = 3_747_200 + 2 * 4096, 9216 + 4096 + 4096  # with the biases of two full layers
    assert found.hybrid == 4 * (2 * 7 / 8 * filters + 2 * 7 / 8 * 128 * inputs)
