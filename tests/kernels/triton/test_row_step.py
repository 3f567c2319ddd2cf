"""A shard's bits do not depend on how many shards a process takes in one launch."""

import pytest
import torch

from widenet.kernels import native
from widenet.kernels.bags import Touched, gather_sum, split
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.targets import joined
from widenet.model.weight import WHOLE, Part, WideWeight
from widenet.plan.tiles import Shards
from widenet.sparse import SparseBatch
from widenet.spec.training import TrainingSpec

SHARDS, COLUMNS = Shards(53, 8), 5
RATES = torch.linspace(0.1, 0.2, 9, dtype=torch.float64).numpy()
RULE = Optimizer(TrainingSpec.of({"optimizer": "rmsprop"}).optimizer)


def numbers(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def batch():
    rows = [sorted({(7 * e + 3 * i * i) % SHARDS.width for i in range(e % 7)}) for e in range(11)]
    sparse = SparseBatch.from_lists(rows)
    return sparse.with_values(numbers(sparse.num_entries, seed=1))


def held_by(num_processes):
    count = SHARDS.count // num_processes
    return [list(range(first, first + count)) for first in range(0, SHARDS.count, count)]


def weight_of(held, device):
    weight = WideWeight(SHARDS, {}, by_rows=True)
    whole = torch.zeros(len(held) * SHARDS.room, COLUMNS, device=device)
    weight.lay_out(Part(whole), held)
    weight.prepare(RULE)
    for shard, part in weight.parts.items():
        part.weight.copy_(numbers(*part.weight.shape, seed=100 + shard))
        part.moved.copy_(torch.arange(len(part.moved)) % 3)
    return weight


def in_one_launch(held, device):
    """Sums and rows of every shard of a process."""
    parts, weight = split(batch(), SHARDS.count), weight_of(held, device)
    together = joined(parts, SHARDS, held)
    sums = gather_sum(together.to(device), weight.whole.weight)
    touched = Touched.of_shards([together], len(held))
    on_device = Touched(*(tensor.to(device) for tensor in vars(touched).values()))
    gradient = numbers(len(batch().indptr) - 1, COLUMNS, seed=2).to(device)
    weight.update_rows(WHOLE, on_device.by(gradient), RULE, StepNumbers(5, RATES))
    return {
        shard: [
            own_sums.tolist(),
            *(tensor.tolist() for tensor in weight.parts[shard].tensors().values()),
        ]
        for shard, own_sums in zip(held, sums.view(len(held), -1, COLUMNS), strict=True)
    }


@pytest.fixture
def of_all(device):
    return in_one_launch(list(range(SHARDS.count)), device)


@pytest.mark.parametrize("num_processes", [4, pytest.param(8, marks=pytest.mark.long)])
def test_a_shard_has_the_same_bits_in_every_process(num_processes, of_all, device):
    for held in held_by(num_processes):
        for shard, found in in_one_launch(held, device).items():
            assert found == of_all[shard]


def test_these_are_the_bits_of_each_shard_alone(of_all, device):
    assert native.triton_runs(torch.device(device))
    parts = split(batch(), SHARDS.count)
    gradient = numbers(len(batch().indptr) - 1, COLUMNS, seed=2).to(device)
    weight = weight_of(list(range(SHARDS.count)), device)
    for shard, part in weight.parts.items():
        own = parts[shard].to(device)
        sums = gather_sum(own, part.weight)
        touched = Touched(*(tensor.to(device) for tensor in vars(Touched.of(parts[shard])).values()))
        weight.update_rows(shard, touched.by(gradient), RULE, StepNumbers(5, RATES))
        assert [sums.tolist(), *(tensor.tolist() for tensor in part.tensors().values())] == of_all[shard]
