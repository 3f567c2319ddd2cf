"""Batches cut by shards as a dense matrix would be sliced."""

from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows import dense_rows
from widenet.kernels import bags
from widenet.kernels.bags import split
from widenet.model.targets import ByUnit, joined
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


def test_entries_by_unit_lie_together_with_their_examples_and_values():
    part = SparseBatch.from_lists([[3, 1], [], [1, 0]], [[0.1, 0.2], [], [0.3, 0.4]])
    found = ByUnit.of(part)
    assert found.units_Z.tolist() == [0, 1, 1, 3]
    assert found.examples_Z.tolist() == [2, 0, 2, 0]
    assert found.values_Z.tolist() == pytest.approx([0.4, 0.2, 0.3, 0.1])
    assert found.edges([0, 1, 2, 3, 4]) == [0, 1, 3, 3, 4]


@pytest.mark.parametrize("held", [[0, 1, 2], [1, 2], [2]], ids=str)
def test_joined_parts_have_an_example_for_each_shard_and_example(held):
    batch = SparseBatch.from_lists([[3, 1, 9], [], [1, 8]], [[0.1, 0.2, 0.3], [], [0.4, 0.5]])
    shards = Shards(10, 3)
    parts = split(batch, shards.count)
    found = joined(parts, shards, held)
    assert found.indices.dtype == torch.int64
    dense = dense_rows(found, len(held) * shards.room).view(len(held), 3, len(held), shards.room)
    for place, shard in enumerate(held):
        assert torch.equal(
            dense[place, :, place, : shards.size(shard)], dense_rows(parts[shard], shards.size(shard))
        )
    assert dense.sum() == sum(parts[shard].values.sum() for shard in held)
