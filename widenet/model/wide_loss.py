"""One step of a wide output: loss, gradient to the hidden vectors and weight gradients, a tile at a time."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels import RowGradient, exact_sum
from widenet.kernels.table import tile_runner
from widenet.model.compiled_tiles import CompiledPasses
from widenet.model.exchange import Pending
from widenet.model.fused_tiles import FusedPasses
from widenet.model.layers.output import WideOutput
from widenet.model.limits import shortening
from widenet.model.output_step import OutputStep, Passes, RowWise
from widenet.model.plain_tiles import PlainPasses, slopes
from widenet.model.row_activation import add_couplings, add_statistics
from widenet.model.targets import Targets
from widenet.plan.tiles import are_kept, tiles
from widenet.spec.activations import ROW_WISE


@dataclass(frozen=True)
class Takers:
    """Who takes gradients as soon as they are known.

    weight: is given shard, start, stop and gradient [T, H] of each tile. bias: shard and gradient [R] of each
    shard.
    """

    weight: Callable[[int, int, int, Tensor | RowGradient], None]
    bias: Callable[[int, Tensor], None]


def output_step(
    output: WideOutput,
    direct_EH: Tensor,
    targets: Targets,
    weight_E: Tensor,
    tiled_for: int = 0,
    stands: dict[int, Tensor] | None = None,
) -> OutputStep:
    """Return a step before its first pass.

    Args:
        output: The output as the batch meets it.
        direct_EH: float32, the incoming vectors.
        targets: What the E examples ask for.
        weight_E: float32, what each example counts in the loss (its own weight over the batch size).
        tiled_for: Tiles are cut for so many examples, if there are fewer: outputs that share a weight have
            the same tiles.
        stands: See `OutputStep`.
    """
    loss, kind, shards = output.loss, output.spec.activation.kind, output.weight.shards
    device, units_here = direct_EH.device.type, sum(map(shards.size, output.weight.parts))
    target_weight_E, other_weight_E = loss.weights(targets.num_E, output.width, weight_E)
    rows = RowWise(closed=kind == "softmax" and loss.slope_of_logit) if kind in ROW_WISE else None
    cut = [list(tiles(shards.size(s), max(len(direct_EH), tiled_for), device)) for s in range(shards.count)]
    if output.features is not None:  # a weight by columns is updated a whole column of a shard at a time
        cut = [[(0, shards.size(shard))] for shard in range(shards.count)]
    return OutputStep(
        output=output,
        loss=loss,
        direct_EH=output.operand(direct_EH),
        targets=targets,
        target_weight_E=target_weight_E,
        other_weight_E=other_weight_E,
        tiles=cut,
        keeps=are_kept(len(direct_EH), units_here, device, output.kept_bytes),
        passes=_passes(output, rows, direct_EH.device, targets, stands is not None),
        stands=stands,
        rows=rows,
    )


def run(step: OutputStep, takers: Takers | None) -> Pending[list[Tensor]]:
    """Return the loss float64 [] and the gradient float32 [E, H] to the incoming vectors, on their way.

    takers: None where the weight gradients are asked for later by `gradient`.
    """
    if step.rows is not None:
        add_statistics(step, step.rows)
        add_couplings(step, step.rows)
    if step.output.spec.delta_norm is not None:
        _add_shortening(step, step.output.spec.delta_norm)
    found = step.output.exchange.each(lambda shard: _sweep(step, shard, takers))
    losses, gradients = [loss for loss, _ in found], [gradient for _, gradient in found]
    return step.output.exchange.start_sum(losses, gradients, where=step.output.where)


def gradient(step: OutputStep, shard: int, index: int) -> tuple[Tensor | RowGradient, Tensor]:
    """Return the weight gradient [T, H] and the bias gradient [T] of a tile, after `run`."""
    place = shard, index
    tile = step.tile(place)
    kept = step.deltas.pop(place, None)
    delta_ET, bias_T = kept or step.passes.delta(step, place, tile)[1:]
    return tile.weight_gradient(step.direct_EH, delta_ET), bias_T


def _passes(
    output: WideOutput, rows: RowWise | None, device: torch.device, targets: Targets, is_sampled: bool
) -> Passes:
    """The passes that the device and the units of an output take."""
    spec = output.spec
    is_plain = spec.others != "ignore" and spec.delta_boost is None and spec.delta_norm is None
    if not is_plain or is_sampled or targets.sparse is None or (rows is not None and not rows.closed):
        return PlainPasses()
    match tile_runner(device, "closed softmax" if rows is not None else spec.activation.kind, spec.loss.kind):
        case "triton":
            return FusedPasses()
        case "numba":
            return CompiledPasses()
    return PlainPasses()


def _sweep(step: OutputStep, shard: int, takers: Takers | None) -> tuple[Tensor, Tensor]:
    """The last pass over a shard: its loss, its gradient [E, H], and those of its weights to the takers."""
    loss: Tensor | float = 0.0
    gradient_EH = torch.zeros_like(step.direct_EH, dtype=torch.float32)
    # In one piece: small ones that outlive their tile would keep the C library from giving the tile's
    # memory to the next.
    bias_R = torch.empty(step.output.weight.shards.size(shard), device=gradient_EH.device)
    for index, (start, stop) in enumerate(step.tiles[shard]):
        place = shard, index
        tile = step.tile(place)
        tile_loss, delta_ET, bias_T = step.passes.delta(step, place, tile)
        loss = loss + tile_loss
        tile.add_direct_gradient(gradient_EH, delta_ET)
        if takers is not None:
            takers.weight(shard, start, stop, tile.weight_gradient(step.direct_EH, delta_ET))
            bias_R[start:stop] = bias_T
        elif step.keeps:
            step.deltas[place] = delta_ET, bias_T
    if takers is not None and len(bias_R):
        takers.bias(shard, bias_R)
    if not isinstance(loss, Tensor):
        loss = torch.full((), loss, dtype=torch.float64, device=gradient_EH.device)
    return loss, gradient_EH


def _add_shortening(step: OutputStep, limit: float) -> None:
    """Find what keeps each example's gradient by its logits within a length, in a pass over all tiles."""
    exchange = step.output.exchange
    squares = exchange.gather(exchange.each(lambda shard: _squares(step, shard)), step.output.where)
    length_E = exact_sum(squares).sqrt()
    step.shortening_E = shortening(length_E, limit / max(step.num_examples, 1)).float()


def _squares(step: OutputStep, shard: int) -> Tensor:
    """A shard's part of the squared length of each example's gradient by its logits, float64 [E]."""
    total_E = torch.zeros(step.num_examples, dtype=torch.float64, device=step.direct_EH.device)
    for index in range(len(step.tiles[shard])):
        place = shard, index
        loss, slope_ET = slopes(step, place, step.tile(place))
        total_E += slope_ET.double().square().sum(dim=1)
        if step.keeps:
            step.slopes[place] = loss, slope_ET
    return total_E
