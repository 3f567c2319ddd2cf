"""Pruning in training: all but the largest numbers of rows become zero, and zeros stay zero."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from widenet.kernels.largest import zero_others
from widenet.model.exchange import Exchange
from widenet.model.rule import Rule, StepNumbers
from widenet.model.sweep import in_turn
from widenet.model.wide_weight import WideWeight
from widenet.plan.streaming import block_rows


def prune(weights: Mapping[str, WideWeight], exchange: Exchange, rule: Rule, step: StepNumbers) -> None:
    """Prune the rows of all wide weights that a step asks it of, after the steps that they have skipped."""
    for weight in weights.values():
        schedule = weight.pruning
        if schedule is not None and schedule.is_due(step.number, step.count):
            kept = schedule.kept(step.number, step.count)
            weight.catch_up_all(rule, replace(step, number=step.number + 1))
            with in_turn(weight.parts.values(), True):
                exchange.each(partial(_prune_shard, weight, kept))


def _prune_shard(weight: WideWeight, kept: int, shard: int) -> None:
    """Set all but the largest numbers of a shard's rows to zero, with their state."""
    part = weight.parts[shard]
    rows = block_rows(part.weight[:1].nbytes)
    with part.sweep(updates=True) as sweep:
        for start in range(0, len(part.weight), rows):
            stop = min(start + rows, len(part.weight))
            sweep.at(start, stop)
            weight_BH, state = part.rows(start, stop)
            zero_others(weight_BH, kept, *state.values())
