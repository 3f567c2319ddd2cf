"""Entries by shard: compiled as torch has them, and each where it belongs."""

import sys

import pytest
import torch

from widenet.kernels import bags
from widenet.kernels.bags import cut
from widenet.sparse import SparseBatch

module = sys.modules["widenet.kernels.bags"]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("num_shards", [1, 2, 3, 8, 1000])
@pytest.mark.parametrize("counts", [[], [0], [3], [0, 40, 0, 7, 1]])
def test_entries_go_to_their_shards_in_storage_order(counts, num_shards, dtype, monkeypatch):
    number = sum(counts)
    near_edges = torch.tensor([0, 2, 3, 4, 5, 6, 7, 8, 899, 900, 999], dtype=dtype)
    indices_Z = near_edges[torch.randint(11, (number,), generator=torch.Generator().manual_seed(number))]
    batch = SparseBatch(torch.tensor([0, *counts]).cumsum(0), indices_Z, None)
    bounds, units_Z, order_Z = cut(batch, num_shards)
    rows = [index // num_shards for index in indices_Z.tolist()]
    shards = [index % num_shards for index in indices_Z.tolist()]
    examples = batch.example_of_entry().tolist()
    order = sorted(range(number), key=lambda z: (shards[z], examples[z], z))
    assert order_Z.tolist() == order
    assert units_Z.tolist() == [rows[z] for z in order]
    assert bounds.diff().tolist() == [
        sum(found == (s, e) for found in zip(shards, examples, strict=True))
        for s in range(num_shards)
        for e in range(len(counts))
    ]
    monkeypatch.setattr(bags, "library_runs", lambda _: False)
    for found, expected in zip(cut(batch, num_shards), (bounds, units_Z, order_Z), strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)
