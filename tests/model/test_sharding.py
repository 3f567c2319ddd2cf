"""Batches cut by shards as a dense matrix would be sliced."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widenet.model.sharding import ByUnit, split
from widenet.plan.shards import Shards
from widenet.sparse import SparseBatch


@settings(max_examples=200, deadline=None)
@given(
    st.data(),
    st.integers(1, 40),
    st.integers(1, 9),
    st.booleans(),
    st.sampled_from([torch.int32, torch.int64]),
)
def test_a_split_batch_is_the_sliced_dense_matrix_in_storage_order(data, width, count, with_values, dtype):
    rows = data.draw(st.lists(st.lists(st.integers(0, width - 1), max_size=6), max_size=6))
    values = [[1.0 + e + 0.125 * place for place in range(len(row))] for e, row in enumerate(rows)]
    batch = SparseBatch.from_lists(rows, values if with_values else None)
    batch = SparseBatch(batch.indptr, batch.indices.to(dtype), batch.values)
    shards = Shards(width, count)
    parts = split(batch, shards)
    assert len(parts) == count
    for shard, part in enumerate(parts):
        low, high = shards.start(shard), shards.stop(shard)
        part.checked(max(high - low, 1))
        assert part.indices.dtype == dtype
        assert part.indptr.tolist()[1:] == [
            sum(low <= unit < high for row in rows[: e + 1] for unit in row) for e in range(len(rows))
        ]
        assert part.indices.tolist() == [unit - low for row in rows for unit in row if low <= unit < high]
        if with_values:
            kept = [
                value
                for row, own in zip(rows, values, strict=True)
                for unit, value in zip(row, own, strict=True)
                if low <= unit < high
            ]
            assert part.values.tolist() == kept
        else:
            assert part.values is None


def test_entries_by_unit_lie_together_with_their_examples_and_values():
    part = SparseBatch.from_lists([[3, 1], [], [1, 0]], [[0.1, 0.2], [], [0.3, 0.4]])
    found = ByUnit.of(part)
    assert found.units_Z.tolist() == [0, 1, 1, 3]
    assert found.examples_Z.tolist() == [2, 0, 2, 0]
    assert found.values_Z.tolist() == pytest.approx([0.4, 0.2, 0.3, 0.1])
    assert found.edges([0, 1, 2, 3, 4]) == [0, 1, 3, 3, 4]
