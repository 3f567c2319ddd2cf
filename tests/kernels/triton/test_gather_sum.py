"""Sums of weight rows against the definition: in storage order, to the bit."""

import pytest
import torch

from widenet.kernels import reference
from widenet.kernels.triton.gather_sum import gather_sum
from widenet.sparse import SparseBatch

ROWS = {
    "prime sizes": [[(7 * e + 11 * i) % 31 for i in range(e % 5)] for e in range(13)],
    "no examples": [],
    "first and last row empty": [[], [1, 30], []],
    "duplicates in and across rows": [[4, 4, 4], [4, 4], [30, 4, 30]],
    "all units on": [list(range(31)), list(range(31))],
    "one long row": [[(5 * i) % 31 for i in range(37)]],
}


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def batch_of(rows, with_values, dtype):
    batch = SparseBatch.from_lists(rows)
    values = drawn(batch.num_entries) if with_values else None
    return SparseBatch(batch.indptr, batch.indices.to(dtype), values)


@pytest.mark.parametrize(
    ("columns", "with_values", "dtype"),
    [(1, True, torch.int64), (131, False, torch.int32), (1031, True, torch.int32)],
)
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_sums_are_those_of_the_definition_to_the_bit(rows, columns, with_values, dtype, device):
    batch, weight_FH = batch_of(rows, with_values, dtype), drawn(31, columns)
    found, again = (gather_sum(batch.to(device), weight_FH.to(device)).cpu() for _ in range(2))
    expected = reference.gather_sum(batch, weight_FH)
    assert found.dtype == torch.float32
    assert torch.equal(found, again)
    assert found.shape == expected.shape
    assert torch.equal(found, expected)
