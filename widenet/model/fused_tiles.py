"""An output's tiles where Triton runs: one pass over a tile's logits gives loss, deltas and bias gradient."""

import weakref
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from widenet.kernels.devices import runs_triton
from widenet.model.activations import SELU_ALPHA, SELU_SCALE
from widenet.model.compiled_tiles import CompiledPasses
from widenet.model.sharding import ByUnit
from widenet.spec.activations import ROW_WISE, Elu, LeakyRelu, PlainActivation
from widenet.spec.layers import OutputLayer
from widenet.spec.losses import CosineContrastive, DataScaledMarginalCrossEntropy, ScaledMarginalCrossEntropy

if TYPE_CHECKING:
    from widenet.kernels.triton.tile_others import UnitFormula
    from widenet.model.layers.output import Tile
    from widenet.model.row_activation import RowActivation
    from widenet.model.wide_loss import WideLoss


def formula_of(spec: OutputLayer, by_logit: bool) -> "UnitFormula":
    """An output's activation and loss for the kernels; a margin's numbers are one_target, zero_target,
    one_scale, zero_scale, by data.
    """
    from widenet.kernels.triton.tile_others import UnitFormula

    kind: str = spec.loss.kind
    numbers = 0.0, 0.0, 0.0, 0.0, 0.0
    match spec.loss:
        case ScaledMarginalCrossEntropy() as loss:
            kind, by_data = (
                "scaled_marginal_cross_entropy",
                float(isinstance(loss, DataScaledMarginalCrossEntropy)),
            )
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


def passes(step: "WideLoss") -> "FusedTiles | CompiledPasses | None":
    """One pass over a tile where torch's operations take many; None where the step's device or its units
    ask for these.
    """
    spec, kind = step.output.spec, step.activation.kind
    plain = (
        spec.others != "ignore"
        and spec.delta_boost is None
        and spec.delta_norm is None
        and not step.counts_samples
    )
    closed = kind == "softmax" and step.loss.slope_of_logit
    if not plain or step.targets.sparse is None or (kind in ROW_WISE and not closed):
        return None
    return FusedTiles(step) if runs_triton(step.direct_EH.device) else CompiledPasses.where_possible(step)


class FusedTiles:
    """The passes over the tiles of a step whose targets are sparse; the activation is of single units, or
    a softmax in closed form.
    """

    def __init__(self, step: "WideLoss") -> None:
        self.step: WideLoss = weakref.proxy(step)  # it owns us

    def delta(self, shard: int, index: int, tile: "Tile") -> tuple[Tensor, Tensor, Tensor]:
        """As of `WideLoss`: loss float64 [], the gradient [E, T] to the logits as products take it, that
        to the biases, float32 [T].
        """
        products_ET = self.step.tile_logits(shard, index, tile)
        part, starts = self._targets(shard), self.step.targets.starts(shard, self.step.tiles[shard][index])
        if self.step.rows is not None:
            loss, delta_ET, bias_T = self._softmax_delta(shard, self.step.rows, products_ET, tile, starts)
            return loss, self.step.output.operand(delta_ET), bias_T
        from widenet.kernels.triton.tile_others import tile_others
        from widenet.kernels.triton.tile_targets import tile_targets

        formula = formula_of(self.step.output.spec, self.step.loss.slope_of_logit)
        targets_E, others_E = self.step.target_weight_E, self.step.other_weight_E
        loss, delta_ET, bias_T = tile_others(products_ET, tile.bias_T, others_E, formula)
        entries = starts, part.examples_Z, part.values_Z
        loss += tile_targets(
            *entries, products_ET, tile.bias_T, targets_E, others_E, delta_ET, bias_T, formula
        )
        return loss, self.step.output.operand(delta_ET), bias_T

    def softmax_sums(self, shard: int, entry_logits_Z: Tensor) -> tuple[Tensor, Tensor]:
        """A shard's largest logit float32 [E] and its sum of exp(z - largest), float64 [E]; its targets'
        logits are written down.
        """
        from widenet.kernels.triton.softmax_sums import add_softmax_sums
        from widenet.kernels.triton.target_logits import target_logits

        peak_E = torch.full((self.step.num_examples,), -torch.inf, device=self.step.direct_EH.device)
        total_E = torch.zeros_like(peak_E, dtype=torch.float64)
        for index, units in enumerate(self.step.tiles[shard]):
            tile, starts = self.step.tile(shard, index), self.step.targets.starts(shard, units)
            products_ET = self.step.tile_logits(shard, index, tile)
            target_logits(starts, self._targets(shard).examples_Z, products_ET, tile.bias_T, entry_logits_Z)
            add_softmax_sums(products_ET, tile.bias_T, peak_E, total_E)
            self.step.keep_logits(shard, index, products_ET)
        return peak_E, total_E

    def _targets(self, shard: int) -> ByUnit:
        assert self.step.targets.sparse is not None
        return self.step.targets.sparse[shard]

    def _softmax_delta(
        self, shard: int, rows: "RowActivation", products_ET: Tensor, tile: "Tile", starts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        from widenet.kernels.triton.softmax_pulls import softmax_pulls
        from widenet.kernels.triton.softmax_tile import softmax_tile

        logits = products_ET, tile.bias_T, rows.total_E, rows.coupling_E
        delta_ET, bias_T = softmax_tile(*logits)
        entries = starts, self._targets(shard).examples_Z, rows.pulls[shard], rows.values[shard]
        return softmax_pulls(*entries, *logits, delta_ET, bias_T), delta_ET, bias_T
