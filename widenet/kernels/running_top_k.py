"""Finds the k best units of every example, tile by tile."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

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


_BLOCK = 16
"""Units of a tile whose maximum is compared first."""


class Running(Protocol):
    """A running search for the k best units."""

    def add(self, logits_ET: Tensor, units: range) -> None:
        """See `RunningTopK.add`."""

    def result(self) -> Tensor:
        """See `RunningTopK.result`."""


def running_top_k(k: int, floor_E: Tensor) -> Running:
    """Return the implementation of `RunningTopK` for a device."""
    match runner("running_top_k", floor_E.device):
        case "triton":
            from widenet.kernels.triton import running_top_k as launched

            if k <= launched.LARGEST:
                return launched.RunningTopK(k, floor_E)
        case "native":
            return best_units.RunningTopK(k, floor_E)
    return RunningTopK(k, floor_E)


class RunningTopK:
    """Keeps the k best units of E examples over tiles: the largest logits, or the lower of equal units.

    Once it holds k units of an example, others must exceed the k-th logit. Few do; they are collected until
    there are enough for another selection.

    Args:
        k: Number of units.
        floor_E: Logits up to this one are not among the k best of all units, float32 [E]. Searches through
            different units share it, and each raises it when it can. When another search sees the change
            affects how many units it keeps, but not the final result.
    """

    def __init__(self, k: int, floor_E: Tensor) -> None:
        self.k, self.floor_E = k, floor_E
        self.least_E = torch.full_like(floor_E, -torch.inf)
        self.keys_EN = torch.full((len(floor_E), k), MISSING, device=floor_E.device)
        self.num_E = torch.full((len(floor_E),), k, device=floor_E.device)

    def add(self, logits_ET: Tensor, units: range) -> None:
        """Search a tile of units after those of earlier tiles; -inf marks excluded units."""
        if self.keys_EN.shape[1] == self.k < logits_ET.shape[1] and bool((self.floor_E == -torch.inf).any()):
            self._raise_floor(logits_ET.topk(self.k, dim=1, sorted=False).values.amin(dim=1))
        examples_Z, places_Z, logits_Z = _above(logits_ET, torch.maximum(self.least_E, self.floor_E)[:, None])
        if not len(examples_Z):
            return
        counts_E = torch.bincount(examples_Z, minlength=len(self.num_E))
        start_E = self.num_E - (counts_E.cumsum(0) - counts_E)
        self.num_E += counts_E
        most, room = int(self.num_E.max()), self.keys_EN.shape[1]
        if most > room:
            self.keys_EN = pad(self.keys_EN, (0, max(most, 3 * self.k) - room), value=MISSING)
        column_Z = start_E[examples_Z] + torch.arange(len(examples_Z), device=examples_Z.device)
        self.keys_EN[examples_Z, column_Z] = keys(logits_Z, units.start + units.step * places_Z)
        if most > 3 * self.k:
            self._choose(most)

    def result(self) -> Tensor:
        """Return the keys of the k best units, int64 [E, k], descending; `unpacked` reads them."""
        return self.keys_EN.topk(self.k, dim=1).values

    def _choose(self, most: int) -> None:
        """Keep only the k best units of each example so far, and raise the bound for others."""
        best_EK = self.keys_EN[:, :most].topk(self.k, dim=1, sorted=False).values
        self.keys_EN[:, :most] = MISSING
        self.keys_EN[:, : self.k] = best_EK
        self.num_E.fill_(self.k)
        self.least_E = unpacked(best_EK.amin(dim=1))[0]
        self._raise_floor(self.least_E)

    def _raise_floor(self, least_E: Tensor) -> None:
        """Raise the floor to just below some logits; a lower unit with an equal logit may still be kept."""
        torch.maximum(
            self.floor_E, torch.nextafter(least_E, least_E.new_tensor(-torch.inf)), out=self.floor_E
        )


def _above(logits_ET: Tensor, bound_E1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of a tile above the bounds, and NaN: examples, ascending, places and logits.

    The first pass computes the maximum of blocks, each of every S-th unit. Only blocks with a maximum above
    the bound are searched.
    """
    if logits_ET.shape[1] % _BLOCK:
        logits_ET = pad(logits_ET, (0, -logits_ET.shape[1] % _BLOCK), value=-torch.inf)
    logits_EBS = logits_ET.view(len(logits_ET), _BLOCK, logits_ET.shape[1] // _BLOCK)
    examples_N, strips_N = _exceeding(logits_EBS.amax(dim=1), bound_E1)
    logits_NB = logits_EBS[examples_N, :, strips_N]
    which_Z, block_Z = _exceeding(logits_NB, bound_E1[examples_N])
    return examples_N[which_Z], block_Z * logits_EBS.shape[2] + strips_N[which_Z], logits_NB[which_Z, block_Z]


def _exceeding(numbers: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the numbers above the bounds, and of NaN."""
    rows, columns = (numbers <= bounds).logical_not_().nonzero().unbind(1)
    return rows, columns
