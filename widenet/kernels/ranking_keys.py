"""Keys of a ranking: numbers in whose order a unit is better, from which its logit and itself can be read."""

import torch
from torch import Tensor

_LAST = 2**32 - 1
_MAGNITUDE = 2**31 - 1
_MINUS_INFINITY = -(2**23)
"""Its bits as an int32."""

MISSING = (_MINUS_INFINITY ^ _MAGNITUDE) << 32
"""The key of the logit -inf and the last unit. Not computed by torch: importing a module must not settle
torch's instruction set.
"""


def keys(logits: Tensor, units: Tensor) -> Tensor:
    """Numbers int64 in whose order a unit is better: that of the logits float32, of equal ones the lower unit
    first; units below 2^32.

    A logit that is no number comes before all others.
    """
    plain = torch.where(logits.isnan(), torch.nan, logits + 0.0)  # neither -0 nor -nan
    bits = plain.view(torch.int32)
    return ((bits ^ ((bits >> 31) & _MAGNITUDE)).long() << 32) + (_LAST - units)


def unpacked(found: Tensor) -> tuple[Tensor, Tensor]:
    """The logits and the units of some keys; -inf and -1 where there is none."""
    ordered = (found >> 32).int()
    logits = (ordered ^ ((ordered >> 31) & _MAGNITUDE)).view(torch.float32)
    return logits, torch.where(logits == -torch.inf, -1, _LAST - (found & _LAST))
