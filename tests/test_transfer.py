"""Tensors on their way to a device: on a CPU nothing happens to them, on a simulated device streams wait
for one another.
"""

import pytest
import torch

from tests.simulated import streams
from tests.simulated.device import simulated
from widenet.sparse import SparseBatch
from widenet.transfer import Ahead, sent, tensors_of

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def test_on_a_cpu_tensors_stay_where_they_are():
    numbers, ahead = torch.ones(3), Ahead(CPU)
    assert sent(numbers, "cpu") is numbers
    assert ahead.take(ahead.make(lambda: numbers)) is numbers


def test_what_is_sent_is_there_without_the_host_waiting():
    with simulated() as waits:
        there = sent(torch.arange(3), CUDA)
        assert not waits
        assert there.device == CUDA
        assert there.tolist() == [0, 1, 2]


def test_what_comes_back_is_there_when_the_host_reads_it():
    with simulated() as waits:
        batch = SparseBatch.from_lists([[1, 2], [3]]).to(CUDA).to(CPU)
        assert sum(waits.values()) == 2
        assert batch.indices.tolist() == [1, 2, 3]


def made_ahead():
    ahead = Ahead(CUDA)
    return ahead, ahead.make(lambda: {"rows": [SparseBatch.from_lists([[1, 2]]).to(CUDA)], "name": "next"})


def test_the_stream_that_takes_has_waited_for_the_one_that_made():
    with simulated():
        ahead, made = made_ahead()
        [batch] = ahead.take(made)["rows"]
        assert (batch.indices + 1).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("left_out", "message"), [("wait_event", "not waited"), ("record_stream", "nobody has recorded")]
)
def test_a_stream_that_leaves_out_a_step_is_refused(left_out, message, monkeypatch):
    with simulated():
        ahead, made = made_ahead()
        [indptr, indices] = tensors_of(made.value)
        place = streams.Stream if left_out == "wait_event" else type(indices)
        monkeypatch.setattr(place, left_out, lambda *_: None)
        ahead.take(made)
        with pytest.raises(streams.StreamError, match=message):
            indices.add(indptr[0])
