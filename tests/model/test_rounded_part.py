"""A shard in bfloat16: float32 rows, rounded again as of a step, whatever the tile or the order."""

import pytest
import torch

from widenet.kernels import RowGradient, reference
from widenet.model.part import Part
from widenet.model.rounded_part import RoundedPart, Rounding
from widenet.model.rule import StepNumbers
from widenet.model.wide_weight import WideWeight
from widenet.plan import streaming
from widenet.plan.shards import Shards
from widenet.sparse import SparseBatch
from widenet.spec.training import TrainingSpec
from widenet.training.optimizers import Optimizer
from widenet.training.schedules import rates

ROWS, COLUMNS, SHARDS = 60, 10, 4
STOCHASTIC = {"weight_precision": "bfloat16"}
COMPENSATED = {**STOCHASTIC, "weight_rounding": "compensated"}
IN_8_BITS = {**STOCHASTIC, "state_precision": "float8"}


def rounded(settings, optimizer="adam", shard=1, first=None, by_rows=False):
    training = TrainingSpec.of({"seed": 5, "optimizer": optimizer, **settings})
    shards = Shards(ROWS * SHARDS, SHARDS)
    first = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(3)) if first is None else first
    part = RoundedPart(first, Rounding(training, "taste/items", shards, shard))
    rule = Optimizer(training.optimizer)
    wide = WideWeight(shards, {shard: part}, by_rows=by_rows)
    wide.prepare(rule)
    return wide, rule, rates(training, 2000)


def gradient(step):
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(step))


def state_of(wide):
    return {name: tensor.clone() for name, tensor in next(iter(wide.parts.values())).tensors().items()}


def test_rows_and_sums_are_those_of_the_nearest_bfloat16():
    wide, _, _ = rounded(STOCHASTIC)
    part = wide.parts[1]
    weight = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(3)).bfloat16().float()
    rows, state = part.rows(0, ROWS)
    assert state == {}
    assert torch.equal(rows, weight)
    assert torch.equal(torch.cat([*part.blocks(7)]), weight)
    assert torch.equal(wide.select(1, torch.tensor([4, 2])), weight[[4, 2]])
    batch = SparseBatch(torch.tensor([0, 3, 3, 4]), torch.tensor([7, 2, 7, 59], dtype=torch.int32))
    assert torch.equal(part.gathered(batch), reference.gather_sum(batch, weight))


def test_rows_that_catch_up_are_copied_a_block_at_a_time(monkeypatch):
    (wide, rule, of_steps), (other, *_) = (rounded(IN_8_BITS, "momentum", by_rows=True) for _ in range(2))
    for each in (wide, other):
        each.update_rows(
            1, RowGradient.of_rows(torch.arange(ROWS), gradient(1)), rule, StepNumbers(1, of_steps)
        )
    other.catch_up_all(rule, StepNumbers(9, of_steps))
    together, copied = [], RoundedPart._copied
    monkeypatch.setattr(RoundedPart, "_copied", lambda *own: together.append(len(own[1])) or copied(*own))
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 7 * 4 * COLUMNS)
    wide.catch_up_all(rule, StepNumbers(9, of_steps))
    assert together == [7] * 8 + [4]
    assert all(torch.equal(tensor, state_of(other)[name]) for name, tensor in state_of(wide).items())


@pytest.mark.parametrize("settings", [STOCHASTIC, COMPENSATED, IN_8_BITS, {**COMPENSATED, **IN_8_BITS}])
def test_steps_by_tiles_and_by_rows_in_any_order_give_the_same_bits(settings):
    by_tiles, by_rows = rounded(settings), rounded(settings)
    for step in (1, 2, 3):
        for wide, rule, of_steps in (by_tiles, by_rows):
            numbers = StepNumbers(step, of_steps)
            if wide is by_tiles[0]:
                for start, stop in ((0, 17), (17, 60)):
                    wide.update_tile(1, start, stop, gradient(step)[start:stop], rule, numbers)
            else:
                for rows in (torch.arange(0, 60, 3), torch.arange(1, 60, 3), torch.arange(2, 60, 3)):
                    wide.update_rows(1, RowGradient.of_rows(rows, gradient(step)[rows]), rule, numbers)
    assert all(torch.equal(state_of(by_tiles[0])[name], own) for name, own in state_of(by_rows[0]).items())


@pytest.mark.parametrize("settings", [STOCHASTIC, {**COMPENSATED, **IN_8_BITS}])
def test_rows_that_no_step_touches_keep_their_bits(settings):
    wide, rule, of_steps = rounded(settings)
    wide.update_tile(1, 0, ROWS, gradient(1), rule, StepNumbers(1, of_steps))
    before, rows = state_of(wide), torch.tensor([3, 8])
    wide.update_rows(1, RowGradient.of_rows(rows, gradient(2)[rows]), rule, StepNumbers(2, of_steps))
    others = [row for row in range(ROWS) if row not in (3, 8)]
    after = state_of(wide)
    assert all(torch.equal(before[name][others], after[name][others]) for name in before)
    assert not torch.equal(before["weight"][rows], after["weight"][rows])


def test_shards_and_steps_round_by_other_chances():
    first = torch.full((ROWS, COLUMNS), 1.0)
    found = []
    for shard, step in ((1, 1), (1, 2), (2, 1)):
        wide, rule, of_steps = rounded(STOCHASTIC, {"kind": "sgd", "learning_rate": 1.0}, shard, first)
        small = torch.full((ROWS, COLUMNS), -(2.0**-9))
        wide.update_tile(shard, 0, ROWS, small, rule, StepNumbers(step, of_steps))
        found.append(wide.parts[shard].rows(0, ROWS)[0] > 1)
    assert all(0.15 < float(each.float().mean()) < 0.35 for each in found)
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize(("settings", "tolerance"), [(STOCHASTIC, 0.02), (COMPENSATED, 2.0**-8)])
def test_steps_far_smaller_than_the_distance_of_two_numbers_add_up(settings, tolerance):
    steps, size = 1000, 2.0**-12  # the nearest bfloat16 to 1 + 2^-12 is 1
    wide, rule, of_steps = rounded(
        settings, {"kind": "sgd", "learning_rate": 1.0}, first=torch.full((ROWS, COLUMNS), 1.0)
    )
    for step in range(1, steps + 1):
        small = torch.full((ROWS, COLUMNS), -size)
        wide.update_tile(1, 0, ROWS, small, rule, StepNumbers(step, of_steps))
    total = wide.parts[1].rows(0, ROWS)[0]
    assert abs(float(total.mean()) - 1 - steps * size) < tolerance
    assert float((total - total.mean()).abs().max()) < (2.0**-20 if settings is COMPENSATED else 0.3)


def test_its_steps_follow_those_in_float32():
    wide, rule, of_steps = rounded(IN_8_BITS, {"kind": "adam", "learning_rate": 0.01})
    first = wide.parts[1].rows(0, ROWS)[0].clone()
    exact = WideWeight(wide.shards, {1: Part(first.clone())})
    exact.prepare(rule)
    drift = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(99))
    for step in range(1, 101):
        for each in (wide, exact):
            each.update_tile(1, 0, ROWS, gradient(step) + drift, rule, StepNumbers(step, of_steps))
    moved, expected = wide.parts[1].rows(0, ROWS)[0] - first, exact.parts[1].rows(0, ROWS)[0] - first
    assert float((moved - expected).norm() / expected.norm()) < 0.1
