"""Losses and slopes of a tile's units by torch: of all as if none were a target, then of the targets."""

import torch
from torch import Tensor

from widenet.model.output_step import OutputStep, Place
from widenet.model.targets import TileEntries


def unit_losses(step: OutputStep, place: Place, logits_ET: Tensor, a_ET: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted loss float64 [] of a tile and its slope [E, T].

    The slope is by the activation or by the logit, as the loss has it (`slope_of_logit`).
    """
    t_ET = step.dense_targets(place)
    if t_ET is not None:
        value_ET, slope_ET = step.loss.cells(logits_ET, a_ET, t_ET)
        weight_ET = torch.where(t_ET > 0, step.target_weight_E[:, None], step.other_weight_E[:, None])
        return (value_ET * weight_ET).sum(dtype=torch.float64), slope_ET * weight_ET
    entries = step.entries(place)
    z_Z, a_Z = logits_ET.view(-1)[entries.places_Z], a_ET.view(-1)[entries.places_Z]
    value_Z, slope_Z = step.loss.cells(z_Z, a_Z, entries.values_Z)
    weight_Z, other_Z = _entry_weights(step, entries)
    if step.output.spec.others == "ignore":
        slope_ET = torch.zeros_like(logits_ET)
        slope_ET.view(-1)[entries.places_Z] = slope_Z * weight_Z
        return (value_Z * weight_Z).sum(dtype=torch.float64), slope_ET
    stands_T = step.stands_of(place)
    value_E, slope_ET = _others(step, logits_ET, a_ET, stands_T)
    loss = (value_E * step.other_weight_E).sum(dtype=torch.float64)
    slope_ET.mul_(step.other_weight_E[:, None])
    other_value_Z = step.loss.others(z_Z, a_Z)[0]
    if stands_T is not None:
        other_value_Z = other_value_Z * stands_T[entries.places_Z % len(stands_T)]
    slope_ET.view(-1)[entries.places_Z] = slope_Z * weight_Z
    return loss + (value_Z * weight_Z - other_value_Z * other_Z).sum(dtype=torch.float64), slope_ET


def _entry_weights(step: OutputStep, entries: TileEntries) -> tuple[Tensor, Tensor]:
    """Return the loss weights of the stored targets, and their weights as other units: float32 [Z] each."""
    other_Z = step.other_weight_E[entries.examples_Z]
    return torch.where(entries.values_Z > 0, step.target_weight_E[entries.examples_Z], other_Z), other_Z


def _others(
    step: OutputStep, logits_ET: Tensor, a_ET: Tensor, stands_T: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the loss [E] of a tile's units, as if none were a target, and their slopes [E, T].

    The slopes may be `a_ET` itself. Each unit of a sample counts as often as the units it represents.
    """
    value_ET, slope_ET = step.loss.others(logits_ET, a_ET)
    if stands_T is None:
        return value_ET.sum(dim=1, dtype=torch.float64), slope_ET
    return (value_ET * stands_T).sum(dim=1), slope_ET * stands_T
