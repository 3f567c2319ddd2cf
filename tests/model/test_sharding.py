"""Batches cut by shards as a dense matrix would be sliced."""

from unittest import mock

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widenet.kernels import bags
from widenet.kernels.bags import split
from widenet.plan.tiles import Shards
from widenet.sparse import SparseBatch


@settings(max_examples=200, deadline=None)
@given(
    st.data(),
    st.integers(1, 40),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([torch.int32, torch.int64]),
    st.booleans(),
)
def test_a_split_batch_is_the_sliced_dense_matrix_in_storage_order(
    data, width, count, with_values, dtype, is_native
):
    rows = data.draw(st.lists(st.lists(st.integers(0, width - 1), max_size=6), max_size=6))
    values = [[1.0 + e + 0.125 * place for place in range(len(row))] for e, row in enumerate(rows)]
    batch = SparseBatch.from_lists(rows, values if with_values else None)
    batch = SparseBatch(batch.indptr, batch.indices.to(dtype), batch.values)
    shards = Shards(width, count)
    runs = bags.library_runs if is_native else lambda _: False
    with mock.patch.object(bags, "library_runs", runs):
        parts = split(batch, shards.count)
    assert len(parts) == count
    for shard, part in enumerate(parts):
        units = shards.units(shard)
        part.checked(max(len(units), 1))
        assert part.indices.dtype == dtype
        assert part.indptr.tolist()[1:] == [
            sum(unit in units for row in rows[: e + 1] for unit in row) for e in range(len(rows))
        ]
        assert part.indices.tolist() == [units.index(unit) for row in rows for unit in row if unit in units]
        if with_values:
            kept = [
                value
                for row, own in zip(rows, values, strict=True)
                for unit, value in zip(row, own, strict=True)
                if unit in units
            ]
            assert part.values.tolist() == kept
        else:
            assert part.values is None
