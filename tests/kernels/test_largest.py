"""Which numbers of a row stay: those that sorting by magnitude, then by column, puts first."""

import pytest
import torch

from widenet.kernels.largest import largest, zero_others


def sorted_first(row, k):
    return sorted(sorted(range(len(row)), key=lambda column: (-abs(row[column]), column))[:k])


@pytest.mark.parametrize("k", [1, 3, 8, 11])
def test_they_are_the_first_of_the_sorted_ones(k):
    rows = torch.randint(-3, 4, (200, 11), generator=torch.Generator().manual_seed(k)) / 4.0
    rows[0], rows[1], rows[2, ::2] = 0, 5e-39, -0.0
    found = largest(rows, k).sort(dim=1).values.tolist()
    assert found == [sorted_first(row, k) for row in rows.tolist()]


def test_all_others_become_zero_in_every_tensor():
    rows, beside = torch.randn(50, 9, generator=torch.Generator().manual_seed(0)), torch.ones(50, 9)
    before = rows.clone()
    zero_others(rows, 4, beside)
    stays = torch.zeros(50, 9, dtype=torch.bool).scatter_(1, before.abs().topk(4).indices, True)
    assert torch.equal(rows, torch.where(stays, before, 0.0))
    assert torch.equal(beside, stays.float())
