"""Sums that whole layers divide by."""

import pytest
import torch

from widenet.model.wide_loss import RowSum


@pytest.mark.parametrize("kind", ["softmax", "relu_max", "linear_max"])
def test_columns_that_fill_up_a_tile_add_nothing(kind):
    logits_ET = torch.randn(4, 13, generator=torch.Generator().manual_seed(3)) * 5
    filled_EC = torch.cat([logits_ET, torch.full((4, 3), -torch.inf if kind == "softmax" else 0.0)], dim=1)
    tile, filled = (RowSum.empty(kind, 4, logits_ET.device) for _ in range(2))
    tile.add(logits_ET, 8)
    filled.add(filled_EC)
    assert torch.equal(tile.sum_E, filled.sum_E)
    assert torch.equal(tile.peak_E, filled.peak_E)
