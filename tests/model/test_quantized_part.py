"""A shard in 8 bits gathers and gives the rows that it was rounded to."""

import pytest
import torch

from widenet.kernels import reference
from widenet.model.weight import Part, QuantizedPart
from widenet.sparse import SparseBatch


@pytest.fixture
def part():
    weight = torch.randn(300, 7, generator=torch.Generator().manual_seed(3))
    weight[5] = 0
    return Part(weight)


def test_rows_are_near_those_of_the_weight(part):
    made = QuantizedPart.of(part)
    rows = made.rows(10, 20).weight
    assert bool(((rows - part.weight[10:20]).abs() <= 0.501 * made.scale_R[10:20, None]).all())
    assert torch.equal(torch.cat([*made.blocks(64)]), made.rows(0, 300).weight)


@pytest.mark.parametrize("values", [None, [0.5, -2.0, 3.0, 1.0]])
def test_sums_are_those_of_its_rows(part, values):
    made = QuantizedPart.of(part)
    batch = SparseBatch(torch.tensor([0, 3, 3, 4]), torch.tensor([7, 2, 7, 299], dtype=torch.int32))
    batch = batch if values is None else batch.with_values(torch.tensor(values))
    expected = reference.gather_sum(batch, made.rows(0, 300).weight)
    torch.testing.assert_close(made.gathered(batch), expected, rtol=0, atol=0)


def test_directions_have_length_one_or_none(part):
    made = QuantizedPart.of(part)
    lengths = (made.weight.float() * made.for_directions[:, None]).norm(dim=1)
    assert lengths[5] == 0
    torch.testing.assert_close(lengths[torch.arange(300) != 5], torch.ones(299))
