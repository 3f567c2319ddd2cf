"""One step of a wide output: loss, gradient to the hidden vectors and weight gradients, a tile at a time.

Row-wise activations (softmax, relu_max and linear_max) divide by a sum over the whole layer, so they need two
passes before the last one. With a = f(z) / N, N = sum f (softmax: f = exp, relu_max: max(z, 0), linear_max:
f = z and N = sum |z|), and g the loss's slope by a: dE/dz = f'(z) / N * (g - s * sum(g * a)), where s is
sign(z) for linear_max and 1 otherwise. Under a softmax, cross-entropies have the closed form
p * sum(pulls) - pull.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.exchange import Pending
from widenet.kernels.fixed_point import exact_sum, sum_by
from widenet.kernels.table import tile_runner
from widenet.model.layers.output import WideOutput
from widenet.model.limits import shortening
from widenet.model.native_passes import NativePasses
from widenet.model.output_step import LibrarySteps, OutputStep, RowWise, unit_losses
from widenet.model.plain_tiles import delta, slopes, statistics
from widenet.model.row_sum import divided, over_shards
from widenet.model.sweep import in_turn
from widenet.model.targets import Targets
from widenet.plan.tiles import GRADIENT_NUMBERS, are_kept, tiles
from widenet.spec.activations import ROW_WISE


@dataclass(frozen=True)
class GradientSinks:
    """Callbacks that receive gradients as soon as they are known.

    Attributes:
        weight: Called with shard, start, stop and gradient [T, H] of each tile.
        bias: Called with shard and gradient [R] of each shard.
        library_steps: The steps of the shards for passes that make them themselves, instead of calling
            `weight` and `bias`; such passes need them.
    """

    weight: Callable[[int, int, int, Tensor | RowGradient], None]
    bias: Callable[[int, Tensor], None]
    library_steps: LibrarySteps | None = None


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
        output: The output, for the batch.
        direct_EH: The incoming vectors, float32.
        targets: Targets of the E examples.
        weight_E: Per-example loss weights, float32 (own weight over the batch size).
        tiled_for: Smallest number of examples for which to cut tiles; outputs that share a weight need equal
            tiles.
        stands: See `OutputStep`.
    """
    loss, kind, shards = output.loss, output.spec.activation.kind, output.known or output.weight.shards
    device, units_here = direct_EH.device.type, sum(map(shards.size, output.weight.parts))
    target_weight_E, other_weight_E = loss.weights(targets.num_E, shards.width, weight_E)
    rows = RowWise(closed=_is_closed(output)) if kind in ROW_WISE else None
    cut = [list(tiles(shards.size(s), max(len(direct_EH), tiled_for), device)) for s in range(shards.count)]
    if output.features is not None:  # a weight by columns is updated a whole column of a shard at a time
        cut = [[(0, shards.size(shard))] for shard in range(shards.count)]
    step = OutputStep(
        output=output,
        loss=loss,
        direct_EH=output.operand(direct_EH),
        targets=targets,
        target_weight_E=target_weight_E,
        other_weight_E=other_weight_E,
        tiles=cut,
        keeps=are_kept(len(direct_EH), units_here, device, output.kept_bytes),
        stands=stands,
        rows=rows,
    )
    if _is_native(step):
        step.whole = NativePasses(replace(step))  # not itself: memory is free as soon as nobody uses the step
    return step


def run(step: OutputStep, sinks: GradientSinks | None) -> Pending[list[Tensor]]:
    """Start the loss float64 [] and the gradient float32 [E, H] to the incoming vectors.

    Without sinks, `gradient` gives the weight gradients afterwards.
    """
    limit = step.output.spec.delta_norm
    with passes(step.output, updates=sinks is not None, gives_slopes=step.whole is None):
        if step.whole is not None:
            losses, gradients = step.whole.run(None if sinks is None else sinks.library_steps)
            return step.output.exchange.start_sum(losses, gradients, where=step.output.where)
        if step.rows is not None:
            _add_statistics(step, step.rows)
            _add_couplings(step, step.rows)
        if limit is not None:
            _add_shortening(step, limit)
        results = step.output.exchange.each(lambda shard: _sweep(step, shard, sinks))
    losses, gradients = [loss for loss, _ in results], [gradient for _, gradient in results]
    return step.output.exchange.start_sum(losses, gradients, where=step.output.where)


def passes(
    output: WideOutput, updates: bool, begins: bool = False, gives_slopes: bool = True
) -> AbstractContextManager[None]:
    """Within the block, read rows in files ahead of the passes that `run` makes.

    Args:
        output: The output.
        updates: Whether the last pass updates the rows.
        begins: See `in_turn`.
        gives_slopes: Whether a softmax has a pass for slopes even without updates.
    """
    weight, readings = output.weight, int(output.spec.delta_norm is not None)
    if output.spec.activation.kind in ROW_WISE:
        readings += 1 if _is_closed(output) else 2
        gives_slopes = gives_slopes or updates
    last = [updates and weight.trained] if gives_slopes or output.spec.activation.kind not in ROW_WISE else []
    return in_turn(weight.parts.values(), *[False] * readings, *last, begins=begins)


def _is_closed(output: WideOutput) -> bool:
    """Return whether the activation is a softmax whose gradient has the closed form."""
    return output.spec.activation.kind == "softmax" and output.loss.slope_of_logit


def rows_together(step: OutputStep) -> int:
    """Return for how many units `gradient` works at once, at most; 0: for a single tile."""
    return 0 if step.whole is None else GRADIENT_NUMBERS // max(step.direct_EH.shape[1], 1)


def gradient(step: OutputStep, shard: int, first: int, last: int) -> tuple[Tensor | RowGradient, Tensor]:
    """Return the gradients of weights [T, H] and biases [T] in the tiles [first, last), after `run`.

    That of a frozen weight is empty. For several tiles see `rows_together`.
    """
    if step.whole is not None:
        starts = step.starts(shard)
        return step.whole.gradient(shard, starts[first], starts[last])
    assert last == first + 1
    place = shard, first
    tile = step.tile(place)
    kept = step.deltas.pop(place, None)
    delta_ET, bias_T = kept or delta(step, place, tile)[1:]
    if not step.output.weight.trained:
        return delta_ET.new_zeros(0), bias_T
    return tile.weight_gradient(step.direct_EH, delta_ET), bias_T


def _is_native(step: OutputStep) -> bool:
    """Return whether the native library makes a step."""
    output, spec, rows = step.output, step.output.spec, step.rows
    is_plain = spec.others != "ignore" and spec.delta_boost is None and spec.delta_norm is None
    has_vectors = not spec.weightless and output.features is None
    if not (is_plain and has_vectors) or step.stands is not None or step.targets.sparse is None:
        return False
    kind = "closed softmax" if rows is not None and rows.closed else spec.activation.kind
    return tile_runner(step.direct_EH.device, kind, spec.loss.kind) == "native"


def _sweep(step: OutputStep, shard: int, sinks: GradientSinks | None) -> tuple[Tensor, Tensor]:
    """Make the last pass over a shard: return its loss and its gradient [E, H]; fill the sinks."""
    loss: Tensor | float = 0.0
    gradient_EH = torch.zeros_like(step.direct_EH, dtype=torch.float32)
    # One tensor for all tiles: small tensors that outlive their tile would keep the C library from
    # reusing the tile's memory for the next one.
    bias_R = torch.empty(step.output.weight.shards.size(shard), device=gradient_EH.device)
    for place in step.places(shard, updates=sinks is not None):
        (start, stop), tile = step.tiles[shard][place[1]], step.tile(place)
        tile_loss, delta_ET, bias_T = delta(step, place, tile)
        loss = loss + tile_loss
        tile.add_direct_gradient(gradient_EH, delta_ET)
        if sinks is not None:
            if step.output.weight.trained:
                sinks.weight(shard, start, stop, tile.weight_gradient(step.direct_EH, delta_ET))
            bias_R[start:stop] = bias_T
        elif step.keeps:
            step.deltas[place] = delta_ET, bias_T
    if sinks is not None and len(bias_R):
        sinks.bias(shard, bias_R)
    return _as_tensor(loss, gradient_EH), gradient_EH


def _as_tensor(loss: Tensor | float, gradient_EH: Tensor) -> Tensor:
    """Return a loss, float64 [], on the device of the gradient."""
    if isinstance(loss, Tensor):
        return loss
    return torch.full((), loss, dtype=torch.float64, device=gradient_EH.device)


def _add_statistics(step: OutputStep, rows: RowWise) -> None:
    """Compute the divisor of a row-wise activation, in a pass over all tiles."""
    exchange, where = step.output.exchange, step.output.where
    sums = exchange.each(lambda shard: statistics(step, shard))
    rows.total_E = over_shards(sums, exchange, where)


def _add_couplings(step: OutputStep, rows: RowWise) -> None:
    """Compute the common part of all units' gradients.

    Under the closed form this needs only the targets, else a pass over all tiles.
    """
    exchange, where = step.output.exchange, step.output.where
    part = _sum_of_pulls if rows.closed else _sum_of_slopes
    parts = exchange.gather(exchange.each(lambda shard: part(step, rows, shard)), where)
    rows.coupling_E = exact_sum(parts).float()


def _sum_of_pulls(step: OutputStep, rows: RowWise, shard: int) -> Tensor:
    """Store loss and pull of every target of a shard; return the pulls' sum, float64 [E]."""
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
    for place in step.places(shard):
        logits_ET = step.tile_logits(place)
        a_ET = divided(step.kind, logits_ET, rows.total_E[:, None])
        total_E += (unit_losses(step, place, logits_ET, a_ET)[1] * a_ET).sum(dim=1)
        step.keep_logits(place, logits_ET)
    return total_E


def _add_shortening(step: OutputStep, limit: float) -> None:
    """Compute the factors that shorten each example's gradient to its logits, in a pass over all tiles."""
    exchange = step.output.exchange
    squares = exchange.gather(exchange.each(lambda shard: _squares(step, shard)), step.output.where)
    length_E = exact_sum(squares).sqrt()
    step.shortening_E = shortening(length_E, limit / max(step.num_examples, 1)).float()


def _squares(step: OutputStep, shard: int) -> Tensor:
    """Return a shard's part of the squared length of each example's gradient to its logits, float64 [E]."""
    total_E = torch.zeros(step.num_examples, dtype=torch.float64, device=step.direct_EH.device)
    for place in step.places(shard):
        loss, slope_ET = slopes(step, place, step.tile(place))
        total_E += slope_ET.double().square().sum(dim=1)
        if step.keeps:
            step.slopes[place] = loss, slope_ET
    return total_E
