"""torch's passes over an output's tiles, for every activation and loss."""

import torch
from torch import Tensor

from widenet.model.activations import activate, slope
from widenet.model.layers.output import Tile
from widenet.model.output_step import OutputStep, Place, RowWise, unit_losses
from widenet.model.row_sum import RowSum, divided


def statistics(step: OutputStep, shard: int) -> RowSum:
    """Return a shard's part of the divisor of a row-wise activation.

    Under the closed form this also stores the targets' logits.
    """
    rows, device = step.rows, step.direct_EH.device
    assert rows is not None
    total = RowSum.empty(step.kind, step.num_examples, device)
    if rows.closed:
        rows.target_logits[shard] = torch.zeros(step.targets.num_entries(shard), device=device)
    for place in step.places(shard):
        logits_ET = step.tile_logits(place)
        if rows.closed:
            entries = step.entries(place)
            rows.target_logits[shard][entries.span] = logits_ET.view(-1)[entries.places_Z]
        else:
            step.keep_logits(place, logits_ET)
        if step.kind != "softmax":
            total.add(logits_ET)
            continue
        shares = _shares(logits_ET, in_place=rows.closed)
        total.add_part(shares[1], shares[0].sum(dim=1))
        if rows.closed and step.keeps:
            rows.shares[place] = shares
    return total


def delta(step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of a tile, and the gradients to its logits and to its biases.

    Under the closed form, the loss of all targets of a shard comes with its first tile.

    Returns:
        Loss [], gradient [E, T] as an operand of products, and float32 [T].
    """
    kept = step.slopes.pop(place, None)
    loss, delta_ET = kept or slopes(step, place, tile)
    if step.shortening_E is not None:
        delta_ET = delta_ET * step.shortening_E[:, None]
    return loss, step.output.operand(delta_ET), delta_ET.sum(dim=0)


def slopes(step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor, Tensor]:
    """Return the loss float64 [] of a tile and the gradient [E, T] to its logits, with delta_boost only."""
    if step.rows is None:
        loss, slope_ET = _of_single_units(step, place, tile)
    elif step.rows.closed:
        loss, slope_ET = _of_closed_softmax(step, step.rows, place, tile)
    else:
        loss, slope_ET = _of_row_wise_units(step, step.rows, place, tile)
    boost = step.output.spec.delta_boost
    if boost is None:
        return loss, slope_ET
    factor_ET = torch.full_like(slope_ET, boost.other)
    t_ET = step.dense_targets(place)
    if t_ET is not None:
        factor_ET[t_ET > 0] = boost.target
    else:
        entries = step.entries(place)
        factor_ET.view(-1)[entries.places_Z[entries.values_Z > 0]] = boost.target
    return loss, slope_ET * factor_ET


def _of_single_units(step: OutputStep, place: Place, tile: Tile) -> tuple[Tensor, Tensor]:
    activation, logits_ET = step.output.spec.activation, step.tile_logits(place, tile)
    a_ET = activate(activation, logits_ET)
    loss, slope_ET = unit_losses(step, place, logits_ET, a_ET)
    factor_ET = None if step.loss.slope_of_logit else slope(activation, logits_ET, a_ET)
    return loss, slope_ET if factor_ET is None else slope_ET * factor_ET


def _of_closed_softmax(step: OutputStep, rows: RowWise, place: Place, tile: Tile) -> tuple[Tensor, Tensor]:
    shard, index = place
    entries = step.entries(place)
    kept = rows.shares.pop(place, None)
    share_ET, peak_E = kept or _shares(step.tile_logits(place, tile))
    delta_ET = share_ET.mul_((torch.exp(peak_E - rows.total_E) * rows.coupling_E)[:, None])
    delta_ET.view(-1)[entries.places_Z] -= rows.pulls[shard][entries.span]
    loss = rows.loss(shard)
    return loss if index == 0 else torch.zeros_like(loss), delta_ET


def _of_row_wise_units(step: OutputStep, rows: RowWise, place: Place, tile: Tile) -> tuple[Tensor, Tensor]:
    logits_ET = step.tile_logits(place, tile)
    a_ET = divided(step.kind, logits_ET, rows.total_E[:, None])
    loss, slope_ET = unit_losses(step, place, logits_ET, a_ET)
    coupling_E1, total_E1 = rows.coupling_E[:, None], rows.total_E[:, None]
    if step.kind == "softmax":
        return loss, a_ET * (slope_ET - coupling_E1)
    if step.kind == "relu_max":
        delta_ET = (slope_ET - coupling_E1) * (logits_ET > 0) / total_E1
    else:
        delta_ET = (slope_ET - torch.sign(logits_ET) * coupling_E1) / total_E1
    return loss, torch.where(total_E1 == 0, 0.0, delta_ET)


def _shares(logits_ET: Tensor, in_place: bool = True) -> tuple[Tensor, Tensor]:
    """Return exp(z - largest of the tile) [E, T], in place of the logits if allowed, and the largest [E]."""
    # A sample can exclude all units of a tile for an example: all logits are -inf, and inf - inf is NaN.
    peak_E = logits_ET.amax(dim=1).clamp_(min=_LOWEST_PEAK)
    return (logits_ET.sub_(peak_E[:, None]) if in_place else logits_ET - peak_E[:, None]).exp_(), peak_E


_LOWEST_PEAK = -1e30
