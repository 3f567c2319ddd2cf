"""Shards in one allocation: each is a view at an aligned row, and so are its states and its last steps."""

import pytest
import torch

from widenet.model.optimizers import Optimizer
from widenet.model.weight import Part, WideWeight
from widenet.plan.tiles import Shards
from widenet.spec.training import TrainingSpec


@pytest.mark.parametrize("columns", [(), (3,)], ids=str)
@pytest.mark.parametrize(("width", "held"), [(200, [0, 1, 2]), (200, [2]), (192, [1, 2]), (2, [0, 1, 2])])
def test_the_shards_of_a_process_are_views_of_one_allocation(width, held, columns):
    shards = Shards(width, 3)
    weight = WideWeight(shards, {}, by_rows=True)
    weight.lay_out(Part(torch.zeros(len(held) * shards.room, *columns)), held)
    weight.prepare(Optimizer(TrainingSpec.of({"optimizer": "momentum"}).optimizer))
    assert weight.whole is not None
    assert shards.room % 64 == 0
    assert 0 <= shards.room - -(-width // 3) < 64
    assert [*weight.parts] == held
    for place, (shard, part) in enumerate(weight.parts.items()):
        of_whole = [weight.whole.weight, *weight.whole.state.values(), weight.whole.moved]
        for whole, own in zip(of_whole, [part.weight, *part.state.values(), part.moved], strict=True):
            assert len(own) == shards.size(shard)
            own.fill_(shard + 1)
            first = place * shards.room
            assert bool((whole[first : first + len(own)] == shard + 1).all())
    filled = sum((shard + 1) * shards.size(shard) for shard in held)
    assert int(weight.whole.moved.sum()) == filled
