"""The k best in Triton, tile by tile, against the definition: the same units, the same bits."""

import pytest
import torch

from tests.rows import wide_top_k
from widenet.kernels.best_units import running_top_k
from widenet.kernels.reference import RunningTopK, unpacked
from widenet.kernels.triton import running_top_k as module


@pytest.fixture(autouse=True)
def _little_room(monkeypatch):
    monkeypatch.setattr(module, "LEAST", 2)


def by_tiles(logits_EL, k, tile, device, floor_E=None):
    if floor_E is None:
        floor_E = torch.full((len(logits_EL),), -torch.inf, device=device)
    running = running_top_k(k, floor_E)
    assert isinstance(running, module.RunningTopK)
    for start in range(0, logits_EL.shape[1], tile):
        tile_ET = logits_EL[:, start : start + tile].to(device)
        running.add(tile_ET, range(start, start + tile_ET.shape[1]))
    return [found.cpu() for found in unpacked(running.result())]


LOGITS = {
    "random": torch.randn(2, 61, generator=torch.Generator().manual_seed(0)),
    "ascending": torch.arange(61.0)[None],
    "equal": torch.zeros(1, 61),
    "both zeros": torch.tensor([[-0.0, 0.0, -0.0, 0.0, -1.0]]),
    "many hidden": torch.where(torch.arange(61) % 5 > 0, -torch.inf, torch.arange(61.0) % 3)[None],
    "no examples": torch.zeros(0, 61),
}


SEARCHES = [("random", 1, 61), ("random", 16, 20), *((name, 3, 7) for name in LOGITS)]


@pytest.mark.parametrize(("name", "k", "tile"), SEARCHES)
def test_tiles_of_any_size_give_what_the_definition_gives(name, k, tile, device):
    logits_EL = LOGITS[name]
    expected, units = wide_top_k(logits_EL, None, k)
    found, found_units = by_tiles(logits_EL, k, tile, device)
    assert torch.equal(found, expected)
    assert torch.equal(found_units, units)


def test_shards_that_share_a_floor_lose_none_of_the_best(device):
    logits_EL, k = LOGITS["random"], 4
    floor_E = torch.full((2,), -torch.inf, device=device)
    shards = [RunningTopK(k, floor_E) if shard == 1 else running_top_k(k, floor_E) for shard in range(3)]
    for shard, running in enumerate(shards):
        units = range(shard, 60, 3)
        for tile in (units[:10], units[10:]):
            running.add(logits_EL[:, list(tile)].to(device), tile)
    keys_EN = torch.cat([running.result() for running in shards], dim=1).topk(k, dim=1).values.cpu()
    expected, units = wide_top_k(logits_EL[:, :60], None, k)
    assert bool((floor_E > -torch.inf).all())
    assert bool((floor_E.cpu() < expected[:, -1]).all())
    assert torch.equal(unpacked(keys_EN)[1], units)
