"""The search for the k best units of every example, compiled for CPUs. Needs Numba."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, register_jitable

from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.constants import MISSING

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 64
"""Logits that are compared at once; the comparisons are the bits of an integer."""
_LANES = 16
"""Logits of an example that are copied at once."""
_BESIDE = 64
"""Room beside twice k keys, so that a small k seldom chooses."""
_LAST, _MAGNITUDE = 2**32 - 1, 2**31 - 1
_INFINITY, _NOT_A_NUMBER = 0x7F800000, 0x7FC00000
_NO_ROW_ENDS, _NO_UNITS, _NO_FLAGS = np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_)

SEARCH = "Tuple((int64, float32[::1], int64[::1], int64[::1], int64[:, ::1]))"
"""Numba's type of `RunningTopK.argument`."""
HIDDEN = "Tuple((int64[::1], int64[::1], boolean[::1]))"
"""Numba's type of `hidden`."""


def _lowest_bit(typing: Any, bits: Any) -> Any:
    """Return the place of the lowest bit of an integer that is not 0."""
    del typing, bits

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del context, signature
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), generate


lowest_bit: Any = intrinsic(_lowest_bit)


@register_jitable
def _key(logit: Any, unit: Any) -> Any:
    """Return the key of a unit; see `running_top_k.keys`."""
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
def _logit(key: Any) -> Any:
    """Return the logit of a key."""
    ordered = key >> 32
    return np.int32(ordered ^ ((ordered >> 31) & _MAGNITUDE)).view(np.float32)


@register_jitable
def _keep_best(search: Any, e: Any) -> None:
    """Keep the k best keys of an example, and raise its floor."""
    k, floor_E, least_E, num_E, keys_EN = search
    num_E[e], least_E[e] = k, _choose(keys_EN[e, : num_E[e]], k)
    below = np.nextafter(_logit(least_E[e]), np.float32(-np.inf))
    floor_E[e] = below if below > floor_E[e] else floor_E[e]


@register_jitable
def _bounds(search: Any, e: Any) -> Any:
    """Return what logits must exceed: any logit, and one of a unit behind a last one, which is returned too.

    If a logit equals the k-th best, the lower unit is better.
    """
    floor, least = search[1][e], search[2][e]
    logit = _logit(least)
    return floor, logit if logit > floor else floor, _LAST - (least & _LAST)


@register_jitable
def _exceeding(logit_T: Any, start: Any, count: Any, bound: Any) -> Any:
    """Return which of at most 64 logits exceed a bound, as bits; NaN exceeds every bound."""
    bits = np.int64(0)
    for place in range(count):
        bits |= np.int64(not logit_T[start + place] <= bound) << place
    return bits


@register_jitable
def _is_hidden(hidden: Any, e: Any, row: Any) -> Any:
    """Return whether an example may not have the unit of a row of the shard; see `hidden`."""
    ends_E, rows_Z, barred_R = hidden
    if len(barred_R) > 0 and barred_R[row]:
        return True
    if len(rows_Z) == 0:
        return False
    low, high = ends_E[e], ends_E[e + 1]
    while low < high:
        middle = (low + high) >> 1
        if rows_Z[middle] < row:
            low = middle + 1
        else:
            high = middle
    return low < ends_E[e + 1] and rows_Z[low] == row


@register_jitable
def _offer(logit: Any, e: Any, row: Any, unit: Any, search: Any, hidden: Any) -> Any:
    """Offer an example the unit of a row of the shard; return whether that has raised its floor."""
    least_E, num_E, keys_EN = search[2], search[3], search[4]
    key = _key(logit, unit)
    if key < least_E[e] or _is_hidden(hidden, e, row):
        return False
    keys_EN[e, num_E[e]] = key
    num_E[e] += 1
    if num_E[e] < keys_EN.shape[1]:
        return False
    _keep_best(search, e)
    return True


@register_jitable
def search_row(logit_T: Any, e: Any, start: Any, first: Any, step: Any, search: Any, hidden: Any) -> None:
    """Search the logits of an example for some units of a shard.

    Args:
        logit_T: The logits, float32.
        e: The example.
        start: The row of the first unit in its shard.
        first: The first unit; others follow at distances of `step`.
        step: See `first`.
        search: `RunningTopK.argument`.
        hidden: See `hidden`.
    """
    is_first = search[2][e] == MISSING
    floor, behind, last = _bounds(search, e)
    for block in range(0, len(logit_T), _BLOCK):
        bound = behind if first + step * block > last else floor
        if block + _BLOCK <= len(logit_T):
            bits = _exceeding(logit_T, block, _BLOCK, bound)
        else:
            bits = _exceeding(logit_T, block, len(logit_T) - block, bound)
        while bits != 0:
            t = block + lowest_bit(bits)
            bits &= bits - 1
            if _offer(logit_T[t], e, start + t, first + step * t, search, hidden):
                floor, behind, last = _bounds(search, e)
    if is_first:
        set_floor(search, e)


@register_jitable
def search_units(
    logit_UB: Any, first_e: Any, num: Any, of_rows: Any, search: Any, hidden: Any, bound_B: Any
) -> None:
    """Search the logits of some units of a shard, unit by unit, for at most 64 examples.

    `set_floor` should follow for every example after the first tile.

    Args:
        logit_UB: The logits, float32, of 64 examples.
        first_e: The first of them.
        num: How many of them there are; the others are ignored.
        of_rows: The row of the first unit in its shard, the unit, and the distance to the next one.
        search: `RunningTopK.argument`.
        hidden: See `hidden`.
        bound_B: Room for a float32 for each example.
    """
    floor_E, (start, first, step) = search[1], of_rows
    for b in range(_BLOCK):
        bound_B[b] = floor_E[first_e + b] if b < num else np.float32(np.inf)
    for u in range(len(logit_UB)):
        bits = np.int64(0)
        for b in range(_BLOCK):
            bits |= np.int64(not logit_UB[u, b] <= bound_B[b]) << b
        while bits != 0:
            b = lowest_bit(bits)
            bits &= bits - 1
            if b < num and _offer(logit_UB[u, b], first_e + b, start + u, first + step * u, search, hidden):
                bound_B[b] = floor_E[first_e + b]


@register_jitable
def turn_block(logit_UB: Any, start: Any, logit_BT: Any) -> None:
    """Copy the logits of some units to columns, from `start` on, of the logits of their tile."""
    for first in range(0, len(logit_UB), _LANES):
        for b in range(len(logit_BT)):
            for unit in range(first, min(first + _LANES, len(logit_UB))):
                logit_BT[b, start + unit] = logit_UB[unit, b]


@register_jitable
def set_floor(search: Any, e: Any) -> None:
    """Raise the floor of an example after a first tile: other searches wait for it."""
    if search[3][e] > search[0]:
        _keep_best(search, e)


def hidden(
    ends_E: "Tensor | None" = None, rows_Z: "Tensor | None" = None, barred_R: "Tensor | None" = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the units of a shard that examples may not have, for `search_row`.

    Args:
        ends_E: First of the entries of each example, then their number, int64 [E + 1]; None: no entries.
        rows_Z: The entries: rows of the shard, int64, ascending within an example.
        barred_R: Rows that no example may have, bool; None: there are none.
    """
    return (
        _NO_ROW_ENDS if ends_E is None else ends_E.numpy(),
        _NO_UNITS if rows_Z is None else rows_Z.numpy(),
        _NO_FLAGS if barred_R is None else barred_R.numpy(),
    )


@made_once
def compiled_search() -> Callable[..., None]:
    """Compile a function that searches a tile: `RunningTopK.add`.

    Each row of the keys has room for more than k of them. When it is full, the k best are kept.
    """

    def search_tile(logits_ET: Any, first: Any, step: Any, search: Any, hidden: Any) -> None:
        for e in range(len(logits_ET)):
            search_row(logits_ET[e], e, 0, first, step, search, hidden)

    return compile_for(search_tile, f"void(float32[:, ::1], int64, int64, {SEARCH}, {HIDDEN})")


@made_once
def compiled_choice() -> Callable[..., None]:
    """Compile a function that puts the k best keys of every example first; those that are missing too."""

    def choose(k: Any, num_E: Any, keys_EN: Any) -> None:
        for e in range(len(num_E)):
            if num_E[e] > k:
                _choose(keys_EN[e, : num_E[e]], k)
                num_E[e] = k
            keys_EN[e, num_E[e] : k] = MISSING

    return compile_for(choose, "void(int64, int64[::1], int64[:, ::1])")


class RunningTopK:
    """See `kernels.running_top_k.RunningTopK`, whose keys these are; tiles may come in any order."""

    def __init__(self, k: int, floor_E: "Tensor") -> None:
        self.k, self._floor_E = k, floor_E.numpy()
        self._least_E = np.full(len(floor_E), MISSING, np.int64)
        self._num_E = np.zeros(len(floor_E), np.int64)
        self._keys_EN = np.empty((len(floor_E), 2 * k + _BESIDE), np.int64)

    @property
    def argument(self) -> tuple[Any, ...]:
        """The state, for compiled functions."""
        return self.k, self._floor_E, self._least_E, self._num_E, self._keys_EN

    def add(self, logits_ET: "Tensor", units: range) -> None:
        """See `kernels.running_top_k.RunningTopK.add`."""
        tile = logits_ET.contiguous().numpy()
        compiled_search()(tile, units.start, units.step, self.argument, hidden())

    def result(self) -> "Tensor":
        """See `kernels.running_top_k.RunningTopK.result`."""
        import torch  # compiling needs none, and it takes seconds to load

        compiled_choice()(self.k, self._num_E, self._keys_EN)
        best_EK = torch.from_numpy(self._keys_EN[:, : self.k])
        return best_EK.sort(dim=1, descending=True).values
