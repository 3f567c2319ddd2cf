"""Ranking keys: integers that order units from worse to better, and from which unit and logit can be read."""

import torch
from torch import Tensor

from widenet.kernels.constants import MAGNITUDE

_LAST = 2**32 - 1


def keys(logits: Tensor, units: Tensor) -> Tensor:
    """Return keys, int64: a larger logit, or a lower unit of equal logits, has a larger key.

    NaN has the largest keys.

    Args:
        logits: float32.
        units: Integers below 2^32.
    """
    plain = torch.where(logits.isnan(), torch.nan, logits + 0.0)  # neither -0 nor -nan
    bits = plain.view(torch.int32)
    return ((bits ^ ((bits >> 31) & MAGNITUDE)).long() << 32) + (_LAST - units)


def unpacked(ranking_keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits and units of some keys; -inf and -1 for missing units."""
    ordered = (ranking_keys >> 32).int()
    logits = (ordered ^ ((ordered >> 31) & MAGNITUDE)).view(torch.float32)
    return logits, torch.where(logits == -torch.inf, -1, _LAST - (ranking_keys & _LAST))
