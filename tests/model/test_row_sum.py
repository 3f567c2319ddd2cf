"""Sums that whole layers divide by, against the whole layer at once in float64."""

import pytest
import torch

from widenet.model.losses import RowSum, divided, over_shards
from widenet.parallel.exchange import Exchange


@pytest.mark.parametrize("kind", ["softmax", "relu_max", "linear_max"])
def test_tiles_of_several_shards_divide_as_the_whole_layer_does(kind):
    logits_EL = torch.randn(5, 60, generator=torch.Generator().manual_seed(3)) * 30
    logits_EL[1] = -logits_EL[1].abs()
    sums = [RowSum.empty(kind, 5, logits_EL.device) for _ in range(2)]
    for own, shard_EL in zip(sums, torch.split(logits_EL, 40, dim=1), strict=True):
        for tile_ET in torch.split(shard_EL, 15, dim=1):
            own.add(tile_ET)
    whole_EL = logits_EL.double()
    parts_EL = {"softmax": whole_EL.softmax(dim=1), "relu_max": whole_EL.relu(), "linear_max": whole_EL}[kind]
    total_E1 = (
        torch.ones(5, 1) if kind == "softmax" else parts_EL.abs().sum(dim=1, keepdim=True).clamp_min(1e-30)
    )
    found_EL = divided(kind, logits_EL, over_shards(sums, Exchange(2), "test")[:, None])
    torch.testing.assert_close(found_EL.double(), parts_EL / total_E1, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kind", ["softmax", "relu_max", "linear_max"])
def test_columns_that_fill_up_a_tile_add_nothing(kind):
    logits_ET = torch.randn(4, 13, generator=torch.Generator().manual_seed(3)) * 5
    filled_EC = torch.cat([logits_ET, torch.full((4, 3), -torch.inf if kind == "softmax" else 0.0)], dim=1)
    tile, filled = (RowSum.empty(kind, 4, logits_ET.device) for _ in range(2))
    tile.add(logits_ET, 8)
    filled.add(filled_EC)
    assert torch.equal(tile.sum_E, filled.sum_E)
    assert torch.equal(tile.peak_E, filled.peak_E)
