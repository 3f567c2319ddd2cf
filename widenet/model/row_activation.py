"""Activations that divide by a sum over the whole layer, whose units lie in many shards.

softmax, relu_max and linear_max: with a = f(z) / N, N = sum f (softmax: f = exp, relu_max: max(z, 0),
linear_max: f = z and N = sum |z|), and g the loss's slope by a: dE/dz = f'(z) / N * (g - s * sum(g * a)),
s = sign(z) for linear_max and 1 otherwise. Under softmax the cross-entropies have the closed form
p * sum(pulls) - pull.
"""

import torch
from torch import Tensor

from widenet.kernels import exact_sum, sum_by
from widenet.model.output_step import OutputStep, RowWise
from widenet.model.row_sum import divided, over_shards
from widenet.model.unit_losses import unit_losses


def add_statistics(step: OutputStep, rows: RowWise) -> None:
    """Find what the activation divides by, in a pass over all tiles."""
    exchange, where = step.output.exchange, step.output.where
    sums = exchange.each(lambda shard: step.passes.statistics(step, shard))
    rows.total_E = over_shards(sums, exchange, where)


def add_couplings(step: OutputStep, rows: RowWise) -> None:
    """Find what every unit's gradient shares: under the closed form by the targets alone, else in a pass over
    all tiles.
    """
    exchange, where = step.output.exchange, step.output.where
    part = _sum_of_pulls if rows.closed else _sum_of_slopes
    parts = exchange.gather(exchange.each(lambda shard: part(step, rows, shard)), where)
    rows.coupling_E = exact_sum(parts).float()


def _sum_of_pulls(step: OutputStep, rows: RowWise, shard: int) -> Tensor:
    """Note loss and pull of every target of a shard; return the pulls' sum, float64 [E]."""
    assert step.targets.sparse is not None
    part = step.targets.sparse[shard]
    examples_Z, values_Z = part.examples_Z, part.values_or_ones()
    log_p_Z = rows.target_logits.pop(shard) - rows.total_E[examples_Z]
    share_Z = values_Z / step.targets.total_E[examples_Z].clamp_min(1e-30)
    value_Z, pull_Z = step.loss.pulls(log_p_Z, values_Z, share_Z)
    weight_Z = step.target_weight_E[examples_Z]
    rows.pulls[shard] = pull_Z * weight_Z
    rows.losses[shard] = value_Z * weight_Z
    num_terms = part.num(step.output.weight.shards.size(shard))
    return sum_by(rows.pulls[shard].double(), examples_Z, step.num_examples, num_terms)


def _sum_of_slopes(step: OutputStep, rows: RowWise, shard: int) -> Tensor:
    """Return a shard's sum of slope times activation, float64 [E]."""
    total_E = torch.zeros(step.num_examples, dtype=torch.float64, device=step.direct_EH.device)
    for index in range(len(step.tiles[shard])):
        place = shard, index
        logits_ET = step.tile_logits(place)
        a_ET = divided(step.kind, logits_ET, rows.total_E[:, None])
        total_E += (unit_losses(step, place, logits_ET, a_ET)[1] * a_ET).sum(dim=1)
        step.keep_logits(place, logits_ET)
    return total_E
