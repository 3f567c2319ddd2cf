"""Packed batches: every tensor lies in the two, what is beyond it has no effect, and capacities only grow."""

from collections.abc import Iterator

import pytest
import torch

from widenet.kernels import Touched
from widenet.model.packing import Packer, placed
from widenet.model.preparation import Prepared
from widenet.model.sharding import split
from widenet.model.targets import Targets
from widenet.plan.shards import Shards
from widenet.sparse import SparseBatch

SHARDS = Shards(50, 2)


def prepared(sizes, values=False):
    """A batch of examples with so many features each, as an input and an output in two shards take it, and
    some dense numbers.
    """
    rows = [[(7 * e + i) % 50 for i in range(size)] for e, size in enumerate(sizes)]
    batch = SparseBatch.from_lists(
        rows, [[0.5 + i for i in range(size)] for size in sizes] if values else None
    )
    parts = split(batch, SHARDS)
    touched = {"taste/in": {shard: Touched.of(part) for shard, part in enumerate(parts)}}
    dense = {"label": torch.arange(2.0 * len(sizes)).view(-1, 2)}
    return Prepared({"in": parts}, dense, {"next": Targets.of_sparse(batch, SHARDS)}, touched=touched)


def tensors(batch, weights_E) -> Iterator[tuple[torch.Tensor, int | None]]:
    found = []
    placed(batch, weights_E, lambda tensor, fill: found.append((tensor, fill)) or tensor)
    return iter(found)


@pytest.mark.parametrize("values", [False, True])
def test_a_batch_is_what_it_was_and_what_fills_the_room_behind_it(values):
    batch, weights_E = prepared([3, 0, 7, 40], values), torch.tensor([1.0, 2.0, 3.0, 4.0])
    packed = Packer().pack(batch, weights_E)
    found, weights = packed.unpacked(batch, weights_E)
    assert torch.equal(weights, weights_E)
    assert torch.equal(found.dense["label"], batch.dense["label"])
    for (own, fill), (padded, _) in zip(tensors(batch, weights_E), tensors(found, weights), strict=True):
        assert torch.equal(padded.flatten()[: own.numel()], own.flatten().to(padded.dtype))
        assert padded.shape == own.shape if fill is None else bool((padded[own.numel() :] == fill).all())
        assert padded.untyped_storage().data_ptr() in (
            packed.whole.untyped_storage().data_ptr(),
            packed.real.untyped_storage().data_ptr(),
        )
        assert padded.storage_offset() % 16 == 0
    targets = found.targets["next"].sparse[0]
    assert targets.num(25).tolist() == [len(batch.targets["next"].sparse[0].units_Z)]
    assert len(targets.units_Z) > targets.num(25).item()


def test_capacities_grow_with_what_a_batch_asks_for_and_never_shrink():
    packer, capacities = Packer(), []
    for size in (30, 35, 30, 200, 30):
        capacities.append(packer.pack(prepared([size, size, size, size]), None).capacities)
    small, same, again, large, kept = capacities
    assert small == same == again
    assert large == kept
    assert all(before <= after for before, after in zip(small, large, strict=True))
    assert sum(large) > 2 * sum(small)


def test_a_batch_without_entries_is_packed_too():
    batch = prepared([0, 0])
    found, _ = Packer().pack(batch, None).unpacked(batch, None)
    assert found.sparse["in"][0].num_examples == 2
    assert set(found.touched["taste/in"][0].features_U.tolist()) == {-1}
