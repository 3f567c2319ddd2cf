"""Ranking keys: integers that order units from worse to better, and from which unit and logit can be read."""

import torch
from torch import Tensor

_LAST = 2**32 - 1
_MAGNITUDE = 2**31 - 1
_MINUS_INFINITY = -(2**23)
"""The bits of -inf as an int32."""

MISSING = (_MINUS_INFINITY ^ _MAGNITUDE) << 32
"""The key of the logit -inf and the last unit.

It is not computed by torch, because importing a module must not fix torch's instruction set.
"""


def keys(logits: Tensor, units: Tensor) -> Tensor:
    """Return keys, int64: a larger logit, or a lower unit of equal logits, has a larger key.

    NaN has the largest keys.

    Args:
        logits: float32.
        units: Integers below 2^32.
    """
    plain = torch.where(logits.isnan(), torch.nan, logits + 0.0)  # neither -0 nor -nan
    bits = plain.view(torch.int32)
    return ((bits ^ ((bits >> 31) & _MAGNITUDE)).long() << 32) + (_LAST - units)


def unpacked(ranking_keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits and units of some keys; -inf and -1 for missing units."""
    ordered = (ranking_keys >> 32).int()
    logits = (ordered ^ ((ordered >> 31) & _MAGNITUDE)).view(torch.float32)
    return logits, torch.where(logits == -torch.inf, -1, _LAST - (ranking_keys & _LAST))
