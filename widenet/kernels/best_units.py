"""Prediction: logits, the k best units of every example, the divisor of a softmax, rows in 8 bits.

Each product of the native library is one sum in the order of the columns. Additions and multiplications
are fused where the processor can, unless this process has chosen portable bits. So no logit depends on the
examples and units beside it, or on threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from widenet.kernels import reference
from widenet.kernels.native import (
    NARROW,
    Packed,
    call,
    check_dtypes,
    chosen_bits,
    library_runs,
    packed,
    triton_runs,
)
from widenet.sparse import SparseBatch

_BESIDE = 64
"""Room of the native search beside twice k keys, so that a small k seldom chooses."""
MOST_COLUMNS = 2**16
"""Longest rows: the sums of their products fit into 32 bits, also where one side is shifted by 128."""

_LARGEST = 127
_LOW_BITS = 0xFF
_SMALLEST = 2.0**-126
"""The smallest float32 of full precision."""


@dataclass(frozen=True)
class Query:
    """The vectors of E examples that enter an output.

    Attributes:
        number_EH: float32, contiguous; whole numbers for units in 8 bits.
        scale_E: What each example's whole numbers are multiplied by, float32; None: they are not whole.
    """

    number_EH: Tensor
    scale_E: Tensor | None = None

    @classmethod
    def of(cls, direct_EH: Tensor, in_8_bits: bool = False) -> "Query":
        """Return vectors, float32, as units take them."""
        direct_EH = direct_EH.contiguous()
        if not in_8_bits:
            return cls(direct_EH)
        whole_EH, scale_E = quantized_queries(direct_EH)
        return cls(whole_EH.float(), scale_E)

    def check(self, shards: Sequence["Units"]) -> None:
        """Raise TypeError if the vectors of units are not of the same kind and length."""
        vectors = [units.vector_TH for units in shards]
        check_dtypes(**{"float32" if self.scale_E is None else "int8": vectors})
        if {vector_TH.shape[1] for vector_TH in vectors} - {self.number_EH.shape[1]}:
            raise TypeError("the vectors of examples and units differ in length")

    def packed(self, excluded: SparseBatch | None = None, barred_L: Tensor | None = None) -> Packed:
        """Return the vectors for the library, with the units that examples may not have; see `rank`."""
        hidden = (None, None) if excluded is None else (excluded.indptr, excluded.indices)
        check_dtypes(float32=(self.number_EH, self.scale_E), int64=hidden, bool=[barred_L])
        fuses = int(chosen_bits() == "native")
        return packed(self.number_EH, self.scale_E, *self.number_EH.shape, fuses, *hidden, barred_L)


@dataclass(frozen=True)
class Units:
    """Consecutive units of a shard.

    Attributes:
        vector_TH: Their vectors, float32, or int8 for a query of whole numbers; each vector is contiguous.
        numbers: Their numbers.
        factor_T: What the products of each unit are multiplied by, float32; None: nothing.
        bias_T: What is then added, float32; None: nothing.
        directions: Whether products are with vectors of length 1.
    """

    vector_TH: Tensor
    numbers: range
    factor_T: Tensor | None = None
    bias_T: Tensor | None = None
    directions: bool = False

    @cached_property
    def packed(self) -> Packed:
        """Return the units for the library."""
        vector_TH = self.vector_TH
        is_apart = len(vector_TH) > 0 and vector_TH.shape[1] > 1 and vector_TH.stride(1) != 1
        if is_apart or vector_TH.device.type != "cpu":
            raise TypeError("the native library takes contiguous vectors on the CPU")
        check_dtypes(float32=(self.factor_T, self.bias_T))
        return packed(
            vector_TH.data_ptr(),
            vector_TH.stride(0),
            int(self.directions),
            self.factor_T,
            self.bias_T,
            self.numbers.start,
            self.numbers.step,
            len(vector_TH),
        )


class NativeTopK(reference.RunningTopK):
    """See `reference.RunningTopK`; tiles may come in any order."""

    def __init__(self, k: int, floor_E: Tensor) -> None:
        self.k, self._num, self._size = k, len(floor_E), 2 * k + _BESIDE
        check_dtypes(float32=[floor_E])
        self._state_NE = np.empty((2 + self._size, self._num), dtype=np.int64)
        self._state_NE[0], self._state_NE[1] = reference.MISSING, 0
        first, row = self._state_NE.ctypes.data, self._state_NE.itemsize * self._num
        self.packed = packed(k, self._size, floor_E, first, first + row, first + 2 * row)

    def add(self, logits_ET: Tensor, units: range) -> None:
        """See `reference.RunningTopK.add`."""
        check_dtypes(float32=[logits_ET])
        call("search", logits_ET.contiguous(), *logits_ET.shape, units.start, units.step, self.packed)

    def result(self) -> Tensor:
        """See `reference.RunningTopK.result`."""
        call("choose", self.packed, self._num)
        return torch.from_numpy(self._state_NE[2:].reshape(self._num, self._size)[:, : self.k])


def running_top_k(k: int, floor_E: Tensor) -> reference.RunningTopK:
    """Return a search for the k best units: the largest logits, or the lower of equal units.

    Args:
        k: Number of units.
        floor_E: Logits up to this one are not among the k best of all units, float32 [E]. Searches through
            different units share it, and each may raise it. When another search sees the change affects how
            many units it keeps, but not the final result.
    """
    if triton_runs(floor_E.device):
        from widenet.kernels.triton import running_top_k as launched

        if k <= launched.LARGEST:
            return launched.RunningTopK(k, floor_E)
    elif library_runs(floor_E.device):
        return NativeTopK(k, floor_E)
    return reference.RunningTopK(k, floor_E)


def rank(
    query: Query,
    shards: Sequence[Units],
    searches: Sequence[NativeTopK],
    excluded: SparseBatch | None = None,
    barred_L: Tensor | None = None,
    peak_SE: Tensor | None = None,
    total_SE: Tensor | None = None,
) -> None:
    """Search units of some shards, and sum up those of a softmax.

    Args:
        query: The examples.
        shards: The units of each shard.
        searches: A search for each thread; together they find the best units.
        excluded: Units that an example may not have, int64, ascending; None: it may have all.
        barred_L: Whether no example may have a unit, bool; None: each may be had.
        peak_SE: With `total_SE`, takes the sum of a softmax over each shard; see `add_softmax_sum`. None: no
            sum is wanted.
        total_SE: See `peak_SE`.
    """
    if len(query.number_EH) and shards:
        query.check(shards)
        check_dtypes(float32=[peak_SE], float64=[total_SE])
        given, states = [units.packed for units in shards], [search.packed for search in searches]
        asked = query.packed(excluded, barred_L)
        sums = peak_SE, total_SE
        call(
            "rank",
            asked,
            given,
            len(shards),
            *sums,
            states,
            len(states),
            is_narrow=len(query.number_EH) <= NARROW,
        )


def logits(query: Query, units: Units, result_ET: Tensor | None = None) -> Tensor:
    """Return the logits of consecutive units, float32 [E, T], in `result_ET` if there is one.

    Of units in 8 bits, the sum of products of whole numbers, which is exact and so has no order, is
    multiplied by the unit's factor, then by the example's scale, and the bias is added. Each of these rounds
    to float32.
    """
    if result_ET is None:
        result_ET = torch.empty(len(query.number_EH), len(units.vector_TH))
    query.check([units])
    check_dtypes(float32=[result_ET])
    call("logits", query.packed(), units.packed, result_ET, is_narrow=len(query.number_EH) <= NARROW)
    return result_ET


def add_softmax_sum(logits_ET: Tensor, peak_E: Tensor, total_E: Tensor) -> None:
    """Add the logits of a tile to a softmax's running sum, in place.

    Args:
        logits_ET: float32, of at least one unit.
        peak_E: The largest logit so far, float32; -inf at first.
        total_E: The sum of exp(logit - largest) so far, float64.
    """
    if not library_runs(logits_ET.device):
        reference.add_softmax_sum(logits_ET, peak_E, total_E)
        return
    check_dtypes(float32=(logits_ET, peak_E), float64=[total_E])
    call("softmax_sums", logits_ET.contiguous(), *logits_ET.shape, peak_E, total_E)


def quantized(rows_RH: Tensor) -> tuple[Tensor, Tensor]:
    """Round rows to whole numbers from -127 to 127, times a scale for each row.

    The scale is the largest magnitude over 127, rounded up to 16 significant bits, so that `dequantized` is
    exact. No number moves by more than half the scale. Rows whose scale would be less than the smallest
    float32 of full precision, 1.2e-38, become zeros.

    Args:
        rows_RH: float32, finite.

    Returns:
        The whole numbers, int8 [R, H], and the scales, float32 [R].
    """
    least_R = rows_RH.abs().amax(dim=1) / _LARGEST
    bits_R = torch.where(least_R < _SMALLEST, 0.0, least_R).view(torch.int32)
    scale_R = ((bits_R + _LOW_BITS) & ~_LOW_BITS).view(torch.float32)
    return _rounded(rows_RH, torch.where(scale_R == 0, torch.inf, scale_R)), scale_R


def dequantized(whole_RH: Tensor, scale_R: Tensor) -> Tensor:
    """Return the numbers that `quantized` has rounded to, float32 [R, H]."""
    return whole_RH.float().mul_(scale_R[:, None])


def quantized_queries(direct_EH: Tensor) -> tuple[Tensor, Tensor]:
    """Round the vectors that enter an output, each by itself: as `quantized`, with the scale unrounded."""
    scale_E = direct_EH.abs().amax(dim=1) / _LARGEST
    return _rounded(direct_EH, scale_E), scale_E


def _rounded(rows_RH: Tensor, scale_R: Tensor) -> Tensor:
    """Return rows over their scales as whole numbers, int8; zeros where there is no number."""
    whole_RH = (rows_RH / scale_R[:, None]).round_().nan_to_num_(0.0)
    return whole_RH.clamp_(-_LARGEST, _LARGEST).to(torch.int8)
