"""Triton's passes over an output's tiles: one pass turns logits into loss, deltas and bias gradient."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from widenet.model.activations import SELU_ALPHA, SELU_SCALE
from widenet.model.layers.output import Tile
from widenet.model.output_step import OutputStep, Place
from widenet.model.row_sum import RowSum
from widenet.spec.activations import Elu, LeakyRelu, PlainActivation
from widenet.spec.layers import OutputLayer
from widenet.spec.losses import CosineContrastive, DataScaledMarginalCrossEntropy, ScaledMarginalCrossEntropy

if TYPE_CHECKING:
    from widenet.kernels.triton.tile_others import UnitFormula


def formula_of(spec: OutputLayer, by_logit: bool) -> "UnitFormula":
    """Return an output's activation and loss for the kernels.

    The parameters of a marginal cross-entropy are one_target, zero_target, one_scale, zero_scale, by data.
    """
    from widenet.kernels.triton.tile_others import UnitFormula

    kind: str = spec.loss.kind
    numbers = 0.0, 0.0, 0.0, 0.0, 0.0
    match spec.loss:
        case ScaledMarginalCrossEntropy() as loss:
            kind = "scaled_marginal_cross_entropy"
            by_data = float(isinstance(loss, DataScaledMarginalCrossEntropy))
            numbers = loss.one_target, loss.zero_target, loss.one_scale, loss.zero_scale, by_data
        case CosineContrastive() as loss:
            numbers = loss.margin, 0.0, 0.0, 0.0, 0.0
    activation, sides = str(spec.activation.kind), (0.0, 0.0)
    match spec.activation:
        case LeakyRelu(slope=slope):
            sides = slope, 0.0
        case Elu(alpha=alpha, scale=scale):
            sides = alpha, scale
        case PlainActivation(kind="selu"):
            activation, sides = "elu", (SELU_ALPHA, SELU_SCALE)
    return UnitFormula(activation, sides, kind, numbers, by_logit)


class FusedPasses:
    """See `Passes`; for sparse targets of units activated one by one, or of a softmax in closed form."""

    adds_biases = True

    def statistics(self, step: OutputStep, shard: int) -> RowSum:
        """See `Passes.statistics`."""
        from widenet.kernels.triton.softmax_sums import add_softmax_sums
        from widenet.kernels.triton.target_logits import target_logits

        part, device = step.targets.by_unit(shard), step.direct_EH.device
        assert step.rows is not None
        logits_Z = step.rows.target_logits[shard] = torch.zeros(len(part.units_Z), device=device)
        total = RowSum.empty(step.kind, step.num_examples, device)
        for place in step.places(shard):
            units = step.tiles[shard][place[1]]
            tile, starts = step.tile(place), step.targets.starts(shard, units)
            products_ET = step.tile_logits(place, tile)
            target_logits(starts, part.examples_Z, products_ET, tile.bias_T, logits_Z)
            add_softmax_sums(products_ET, tile.bias_T, total.peak_E, total.sum_E)
            step.keep_logits(place, products_ET)
        return total

    def delta(self, step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
        """See `Passes.delta`."""
        of = _of_single_units if step.rows is None else _of_closed_softmax
        loss, delta_ET, bias_T = of(step, place, tile)
        return loss, step.output.operand(delta_ET), bias_T


def _of_single_units(step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
    from widenet.kernels.triton.tile_others import tile_others
    from widenet.kernels.triton.tile_targets import tile_targets

    (shard, index), products_ET = place, step.tile_logits(place, tile)
    part, starts = step.targets.by_unit(shard), step.targets.starts(shard, step.tiles[shard][index])
    formula = formula_of(step.output.spec, step.loss.slope_of_logit)
    weights = step.target_weight_E, step.other_weight_E
    loss, delta_ET, bias_T = tile_others(products_ET, tile.bias_T, step.other_weight_E, formula)
    entries = starts, part.examples_Z, part.values_Z
    loss += tile_targets(*entries, products_ET, tile.bias_T, *weights, delta_ET, bias_T, formula)
    return loss, delta_ET, bias_T


def _of_closed_softmax(step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
    from widenet.kernels.triton.softmax_pulls import softmax_pulls
    from widenet.kernels.triton.softmax_tile import softmax_tile

    (shard, index), rows, products_ET = place, step.rows, step.tile_logits(place, tile)
    assert rows is not None
    part, starts = step.targets.by_unit(shard), step.targets.starts(shard, step.tiles[shard][index])
    logits = products_ET, tile.bias_T, rows.total_E, rows.coupling_E
    delta_ET, bias_T = softmax_tile(*logits)
    entries = starts, part.examples_Z, rows.pulls[shard], rows.losses[shard]
    return softmax_pulls(*entries, *logits, delta_ET, bias_T), delta_ET, bias_T
