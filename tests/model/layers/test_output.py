"""The tiles of outputs."""

import pytest
import torch

from widenet.kernels import gather_sum
from widenet.model.layers import output
from widenet.sparse import SparseBatch


@pytest.mark.parametrize("values", [None, [[0.5, 2.0], [], [1.0]]], ids=["ones", "values"])
def test_a_part_of_a_shard_on_a_sparse_input_reads_the_features_of_the_batch_alone(values, monkeypatch):
    read = []

    def counted(batch, columns_FT):
        read.append(len(columns_FT))
        return gather_sum(batch, columns_FT)

    monkeypatch.setattr(output, "gather_sum", counted)
    turned_FR = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    features = SparseBatch.from_lists([[3, 40], [], [3]], values)
    tiles = [
        output.FeatureTile(turned_FR.T[start:stop], None, None, False, features, None)
        for start, stop in ((0, 8), (2, 5))
    ]
    whole, part = (tile.logits(torch.zeros(3, 0)) for tile in tiles)
    assert torch.equal(part, whole[:, 2:5])
    assert read == [50, 2]
