"""The search for the k best units of every example, compiled for CPUs. Needs Numba."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba.extending import register_jitable
from torch import Tensor

from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.ranking_keys import MISSING

_BLOCK = 64
"""Logits of which none is looked at alone unless one of them exceeds the bound."""
_BESIDE = 64
"""Room beside twice k keys, so that a small k seldom chooses."""
_LAST, _MAGNITUDE = 2**32 - 1, 2**31 - 1
_INFINITY, _NOT_A_NUMBER = 0x7F800000, 0x7FC00000


@register_jitable
def _key(logit: Any, unit: Any) -> Any:
    """Return the key of a unit; see `ranking_keys.keys`."""
    plain = np.float32(logit + np.float32(0))  # no -0
    bits = np.int64(plain.view(np.int32))
    if bits & _MAGNITUDE > _INFINITY:
        bits = np.int64(_NOT_A_NUMBER)
    return ((bits ^ ((bits >> 31) & _MAGNITUDE)) << 32) + (_LAST - unit)


@register_jitable
def _choose(key_N: Any, k: Any) -> Any:
    """Move the k largest of more keys, which all differ, to the front; return the smallest of them."""
    low, high = 0, len(key_N) - 1
    while low < high:
        pivot = key_N[(low + high) >> 1]
        left, right = low, high
        while left <= right:
            while key_N[left] > pivot:
                left += 1
            while key_N[right] < pivot:
                right -= 1
            if left <= right:
                key_N[left], key_N[right] = key_N[right], key_N[left]
                left += 1
                right -= 1
        if k - 1 <= right:
            high = right
        elif k - 1 >= left:
            low = left
        else:
            break
    return key_N[k - 1]


@register_jitable
def _keep_best(k: Any, e: Any, floor_E: Any, least_E: Any, num_E: Any, keys_EN: Any) -> Any:
    """Keep the k best keys of an example; return the bound that further logits must exceed."""
    ordered = _choose(keys_EN[e, : num_E[e]], k) >> 32
    least = np.int32(ordered ^ ((ordered >> 31) & _MAGNITUDE)).view(np.float32)
    below = np.nextafter(least, np.float32(-np.inf))
    num_E[e], least_E[e] = k, least
    floor_E[e] = below if below > floor_E[e] else floor_E[e]
    return floor_E[e] if floor_E[e] > least else least


@made_once
def compiled_search() -> Callable[..., None]:
    """Compile a function that searches a tile: `RunningTopK.add`, whose state it takes as arrays.

    Each row of the keys has room for more than k of them. When it is full, the k best are kept.
    """

    def search(
        logits_ET: Any, first: Any, step: Any, k: Any, floor_E: Any, least_E: Any, num_E: Any, keys_EN: Any
    ) -> None:
        for e in range(len(num_E)):
            is_first = least_E[e] == -np.inf
            bound = floor_E[e] if floor_E[e] > least_E[e] else least_E[e]
            for start in range(0, logits_ET.shape[1], _BLOCK):
                block = logits_ET[e, start : start + _BLOCK]
                exceeding = np.int32(0)
                for b in range(len(block)):
                    exceeding += np.int32(not block[b] <= bound)  # NaN exceeds every bound
                if exceeding == 0:
                    continue
                for b in range(len(block)):
                    if block[b] <= bound:
                        continue
                    keys_EN[e, num_E[e]] = _key(block[b], first + step * (start + b))
                    num_E[e] += 1
                    if num_E[e] == keys_EN.shape[1]:
                        bound = _keep_best(k, e, floor_E, least_E, num_E, keys_EN)
            if num_E[e] > k and is_first:  # other searches wait for a floor
                _keep_best(k, e, floor_E, least_E, num_E, keys_EN)

    whole, number = "int64[::1]", "float32[::1]"
    arguments = f"float32[:, ::1], int64, int64, int64, {number}, {number}, {whole}, int64[:, ::1]"
    return compile_for(search, f"void({arguments})")


class RunningTopK:
    """See `kernels.running_top_k.RunningTopK`, whose keys these are."""

    def __init__(self, k: int, floor_E: Tensor) -> None:
        self.k, self._floor_E, self._search = k, floor_E.numpy(), compiled_search()
        self._least_E = np.full(len(floor_E), -np.inf, np.float32)
        self._num_E = np.zeros(len(floor_E), np.int64)
        self._keys_EN = np.empty((len(floor_E), 2 * k + _BESIDE), np.int64)

    def add(self, logits_ET: Tensor, units: range) -> None:
        """See `kernels.running_top_k.RunningTopK.add`."""
        tile, bounds = logits_ET.contiguous().numpy(), (self._floor_E, self._least_E)
        self._search(tile, units.start, units.step, self.k, *bounds, self._num_E, self._keys_EN)

    def result(self) -> Tensor:
        """See `kernels.running_top_k.RunningTopK.result`."""
        most = max(self.k, int(self._num_E.max(initial=0)))
        keys_EN, num_E = torch.from_numpy(self._keys_EN[:, :most]), torch.from_numpy(self._num_E)
        missing_EN = torch.arange(most) >= num_E[:, None]
        return keys_EN.masked_fill(missing_EN, MISSING).topk(self.k, dim=1).values
