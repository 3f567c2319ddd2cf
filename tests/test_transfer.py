"""Tensors on their way to a device: on a CPU nothing happens to them, on a simulated device streams wait
for one another.
"""

from dataclasses import dataclass, field

import torch

from tests.simulated.device import OnDevice, simulated
from widenet.devices import ON_HOST, Ahead, sent_together
from widenet.sparse import SparseBatch

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@dataclass(frozen=True)
class Several:
    """Tensors of all kinds, nested."""

    batches: dict[str, list[SparseBatch | None]]
    more: list[torch.Tensor]
    own: torch.Tensor = field(metadata=ON_HOST)
    name: str = "next"

    def tensors(self):
        [batch, _] = self.batches["in"]
        return [batch.indptr, batch.indices, batch.values, *self.more]


def test_what_is_sent_together_takes_one_copy_and_is_the_same_there():
    batch = SparseBatch.from_lists([[1, 2], [], [3]], [[0.5, 1.5], [], [2.5]])
    numbers = torch.arange(6, dtype=torch.float64).view(2, 3)
    more = [
        numbers.T,
        numbers,
        torch.tensor(7, dtype=torch.int32),
        torch.zeros(0, 4),
        torch.tensor([True, False]),
    ]
    given = Several({"in": [batch, None]}, more, numbers)
    with simulated() as waits:
        there = sent_together(given, CUDA)
        assert sum(waits.values()) == 0
        assert there.own is given.own
        assert (there.name, there.batches["in"][1]) == ("next", None)
        for before, after in zip(given.tensors(), there.tensors(), strict=True):
            assert isinstance(after, OnDevice)
            assert (after.dtype, after.shape) == (before.dtype, before.shape)
            assert after.tolist() == before.tolist()
            assert after.held.data_ptr() % 64 == 0 or not after.numel()


def test_the_stream_that_takes_has_waited_for_the_one_that_made():
    with simulated():
        ahead = Ahead(CUDA)
        made = ahead.make(lambda: {"rows": [SparseBatch.from_lists([[1, 2]]).to(CUDA)], "name": "next"})
        [batch] = ahead.take(made)["rows"]
        assert (batch.indices + 1).tolist() == [2, 3]
