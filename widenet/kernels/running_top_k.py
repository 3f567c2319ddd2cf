"""The k best units of every example, met tile by tile."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.ranking_keys import MISSING, keys, unpacked
from widenet.kernels.table import runner

_BLOCK = 16
"""Units of a tile that are first seen through their peak."""


class Running(Protocol):
    """The k best units so far."""

    def add(self, logits_ET: Tensor, first_unit: int) -> None:
        """See `RunningTopK.add`."""

    def result(self) -> Tensor:
        """See `RunningTopK.result`."""


def running_top_k(k: int, floor_E: Tensor) -> Running:
    """A `RunningTopK` as the device has it."""
    if runner("running_top_k", floor_E.device) == "triton":
        from widenet.kernels.triton import running_top_k as launched

        if k <= launched.LARGEST:
            return launched.RunningTopK(k, floor_E)
    return RunningTopK(k, floor_E)


class RunningTopK:
    """Keeps the k best units of E examples over tiles: those of the largest logits, of equal ones the lower
    unit.

    Once it holds k units of an example, others must exceed the k-th logit. Few do, and they are kept aside
    until there is enough to choose from.
    floor_E: float32 [E], shared by all who look through some of the units: logits up to it are not among the
    k best of all. Each raises it as soon as it knows better. When another reads that changes how much it
    keeps, never which are the best of all.
    """

    def __init__(self, k: int, floor_E: Tensor) -> None:
        self.k, self.floor_E = k, floor_E
        self.least_E = torch.full_like(floor_E, -torch.inf)
        self.keys_EN = torch.full((len(floor_E), k), MISSING, device=floor_E.device)
        self.num_E = torch.full((len(floor_E),), k, device=floor_E.device)

    def add(self, logits_ET: Tensor, first_unit: int) -> None:
        """Consider a tile of logits, whose units come after those of the tiles before; -inf marks what
        must not appear.
        """
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
        self.keys_EN[examples_Z, column_Z] = keys(logits_Z, places_Z + first_unit)
        if most > 3 * self.k:
            self._choose(most)

    def result(self) -> Tensor:
        """The keys of the k best, int64 [E, k] descending; `unpacked` says what they are."""
        return self.keys_EN.topk(self.k, dim=1).values

    def _choose(self, most: int) -> None:
        """Keep the k best of each example so far, and ask of others to be better."""
        best_EK = self.keys_EN[:, :most].topk(self.k, dim=1, sorted=False).values
        self.keys_EN[:, :most] = MISSING
        self.keys_EN[:, : self.k] = best_EK
        self.num_E.fill_(self.k)
        self.least_E = unpacked(best_EK.amin(dim=1))[0]
        self._raise_floor(self.least_E)

    def _raise_floor(self, least_E: Tensor) -> None:
        """Units with these logits may still be among the best, by being lower ones; anything less may not."""
        torch.maximum(
            self.floor_E, torch.nextafter(least_E, least_E.new_tensor(-torch.inf)), out=self.floor_E
        )


def _above(logits_ET: Tensor, bound_E1: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The logits of a tile that are not up to the bounds: examples, ascending, places, and themselves.

    One look at the tile finds the peaks of blocks, each of every S-th unit; where a peak is too low no other
    look is needed.
    """
    if logits_ET.shape[1] % _BLOCK:
        logits_ET = pad(logits_ET, (0, -logits_ET.shape[1] % _BLOCK), value=-torch.inf)
    logits_EBS = logits_ET.view(len(logits_ET), _BLOCK, logits_ET.shape[1] // _BLOCK)
    examples_N, strips_N = _exceeding(logits_EBS.amax(dim=1), bound_E1)
    logits_NB = logits_EBS[examples_N, :, strips_N]
    which_Z, block_Z = _exceeding(logits_NB, bound_E1[examples_N])
    return examples_N[which_Z], block_Z * logits_EBS.shape[2] + strips_N[which_Z], logits_NB[which_Z, block_Z]


def _exceeding(numbers: Tensor, bounds: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the numbers above the bounds, and of what is no number."""
    rows, columns = (numbers <= bounds).logical_not_().nonzero().unbind(1)
    return rows, columns
