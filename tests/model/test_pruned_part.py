"""A pruned shard gathers and gives the rows of which it stores the largest numbers."""

import pytest
import torch

from widenet.kernels import reference
from widenet.model.part import Part
from widenet.model.pruned_part import PrunedPart
from widenet.sparse import SparseBatch


@pytest.fixture
def part():
    weight = torch.randn(300, 7, generator=torch.Generator().manual_seed(3))
    weight[5] = 0
    return Part(weight)


def test_rows_are_those_of_the_weight_without_the_small_numbers(part):
    made = PrunedPart.of(part, 3)
    rows, state = made.rows(10, 20)
    assert state == {}
    least = part.weight[10:20].abs().topk(3).values[:, 2:]
    assert torch.equal(rows, torch.where(part.weight[10:20].abs() >= least, part.weight[10:20], 0.0))
    assert torch.equal(torch.cat([*made.blocks(64)]), made.rows(0, 300)[0])
    assert made.columns == part.columns == 7


@pytest.mark.parametrize("values", [None, [0.5, -2.0, 3.0, 1.0]])
def test_sums_are_those_of_its_rows(part, values):
    made = PrunedPart.of(part, 3)
    batch = SparseBatch(torch.tensor([0, 3, 3, 4]), torch.tensor([7, 2, 7, 299], dtype=torch.int32))
    batch = batch if values is None else batch.with_values(torch.tensor(values))
    expected = reference.gather_sum(batch, made.rows(0, 300)[0])
    torch.testing.assert_close(made.gathered(batch), expected, rtol=0, atol=0)


def test_directions_have_length_one_or_none(part):
    made = PrunedPart.of(part, 3)
    lengths = (made.weight * made.for_directions[:, None]).norm(dim=1)
    assert lengths[5] == 0
    torch.testing.assert_close(lengths[torch.arange(300) != 5], torch.ones(299))
