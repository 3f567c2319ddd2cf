"""Copies rows of tensors that are read a block at a time to where they belong in a network's tensors."""

import numpy as np
import torch
from torch import Tensor


class RowCopy:
    """Copies rows of an earlier tensor [R, ...] into a tensor of the network.

    Args:
        target: The tensor of the network, to whose type numbers are rounded.
        origin: Index of the earlier row for each row, int64; -1 for new rows.
    """

    def __init__(self, target: Tensor, origin: np.ndarray) -> None:
        known_U = np.flatnonzero(origin >= 0)
        self._target = target
        self._target_U = known_U[np.argsort(origin[known_U], kind="stable")]
        self._source_U = origin[self._target_U]

    def needs(self, units: range) -> bool:
        """Return whether any of these earlier rows is copied."""
        return len(self._among(units)) > 0

    def take(self, block: Tensor, units: range) -> None:
        """Copy the matching rows of a block that holds these earlier rows."""
        own_U = self._among(units)
        places_U = (self._source_U[own_U] - units.start) // units.step
        device, target_U = self._target.device, torch.from_numpy(self._target_U[own_U])
        rows = block.index_select(0, torch.from_numpy(places_U)).to(device, self._target.dtype)
        self._target.index_copy_(0, target_U.to(device), rows)

    def _among(self, units: range) -> np.ndarray:
        """Return which of the earlier rows that are copied are among these."""
        first, last = np.searchsorted(self._source_U, (units.start, units.stop)).tolist()
        is_own = (self._source_U[first:last] - units.start) % units.step == 0
        own_U: np.ndarray = np.arange(first, last)[is_own]
        return own_U
