"""Finds the k best units of every example, tile by tile."""

from typing import Protocol

import torch
from torch import Tensor

from widenet.kernels import best_units
from widenet.kernels.best_units import MAGNITUDE, MISSING
from widenet.kernels.table import runner

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


_PIECE = 2**12
"""Logits of an example that torch compares at once."""


class Running(Protocol):
    """A running search for the k best units."""

    def add(self, logits_ET: Tensor, units: range) -> None:
        """See `RunningTopK.add`."""

    def result(self) -> Tensor:
        """See `RunningTopK.result`."""


def running_top_k(k: int, floor_E: Tensor) -> Running:
    """Return a search for the k best units: the largest logits, or the lower of equal units.

    Args:
        k: Number of units.
        floor_E: Logits up to this one are not among the k best of all units, float32 [E]. Searches through
            different units share it, and each may raise it. When another search sees the change affects how
            many units it keeps, but not the final result.
    """
    match runner("running_top_k", floor_E.device):
        case "triton":
            from widenet.kernels.triton import running_top_k as launched

            if k <= launched.LARGEST:
                return launched.RunningTopK(k, floor_E)
        case "native":
            return best_units.RunningTopK(k, floor_E)
    return RunningTopK(k, floor_E)


class RunningTopK:
    """The definition, in plain torch: keeps the k best units of E examples over tiles."""

    def __init__(self, k: int, floor_E: Tensor) -> None:
        self.keys_EK = torch.full((len(floor_E), k), MISSING, device=floor_E.device)

    def add(self, logits_ET: Tensor, units: range) -> None:
        """Search a tile of units after those of earlier tiles; -inf marks excluded units."""
        for start in range(0, len(units), _PIECE):
            some = units[start : start + _PIECE]
            unit_P = torch.arange(some.start, some.stop, some.step, device=logits_ET.device)
            new_EP = keys(logits_ET[:, start : start + _PIECE], unit_P)
            k = self.keys_EK.shape[1]
            self.keys_EK = torch.cat([self.keys_EK, new_EP], dim=1).topk(k, dim=1).values

    def result(self) -> Tensor:
        """Return the keys of the k best units, int64 [E, k], descending; `unpacked` reads them."""
        return self.keys_EK
