"""A tile of an output on a CPU: logits to loss and slopes in one pass over them, compiled by Numba; import
it where Numba is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba.extending import register_jitable
from torch import Tensor

from widenet.kernels.compiled import compile_for, made_once, named_for

_ZERO, _ONE = np.float32(0), np.float32(1)
_PER_LOG_TWO, _LOG_TWO_HIGH, _LOG_TWO_LOW = (
    np.float32(1.442695041),
    np.float32(0.693359375),
    np.float32(-2.12194440e-4),
)
_TO_WHOLE = np.float32(1.5 * 2**23)
_LEAST = np.float32(-87)
_C0, _C1, _C2, _C3, _C4, _C5 = map(
    np.float32,
    (1.98756915e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
)
"""Cephes' expf: exp(r) = 1 + r + r^2 * polynomial for |r| <= log(2) / 2. Adding _TO_WHOLE rounds to whole
numbers; below _LEAST nothing falls any more. Neither fused nor reordered, it gives the same bits on every
processor.
"""

_PIECE, _PART, _FEW = 256, 64, 16
"""Units whose factors are multiplied before a logarithm is taken, at most 2^256; examples whose slopes are
added before the others'; and numbers that are folded no further.
"""

Kernel = Callable[..., Any]
_NO_VALUES = np.zeros(0, np.float32)


@register_jitable(inline="always")
def _exponential(x: Any) -> Any:
    """exp(x) for x up to about 0, within 2 units of the last place; an undefined number stays one."""
    x = _LEAST if x < _LEAST else x
    shifted = np.float32(x * _PER_LOG_TWO + _TO_WHOLE)
    whole = shifted - _TO_WHOLE
    r = (x - whole * _LOG_TWO_HIGH) - whole * _LOG_TWO_LOW
    series = (((((_C0 * r + _C1) * r + _C2) * r + _C3) * r + _C4) * r + _C5) * (r * r) + r + _ONE
    return series * np.int32((shifted.view(np.int32) + 127) << 23).view(np.float32)


@register_jitable(inline="always")
def _stays(z: Any, examples_Z: Any, units_Z: Any) -> Any:
    """Whether an entry's slope counts: of a target that is named twice the last does."""
    return z + 1 == len(units_Z) or units_Z[z + 1] != units_Z[z] or examples_Z[z + 1] != examples_Z[z]


@register_jitable(inline="always")
def _sum(number_N: Any) -> Any:
    """The sum, by folding the numbers in half again and again, which overwrites them."""
    count = len(number_N)
    while count > _FEW:
        half = (count + 1) >> 1
        for n in range(count - half):
            number_N[n] += number_N[n + half]
        count = half
    total = 0.0
    for n in range(count):
        total += np.float64(number_N[n])
    return total


@register_jitable(inline="always")
def _peak(number_N: Any) -> Any:
    """The largest of one or more numbers, which are overwritten."""
    count = len(number_N)
    while count > _FEW:
        half = (count + 1) >> 1
        for n in range(count - half):
            low, high = number_N[n], number_N[n + half]
            number_N[n] = high if high > low else low
        count = half
    peak = number_N[0]
    for n in range(count):
        peak = number_N[n] if number_N[n] > peak else peak
    return peak


@register_jitable(inline="always")
def _log_of_product(x_V: Any, factor_V: Any) -> Any:
    """The sum of log(1 + x) over a piece; overwrites the factors."""
    count = _PIECE // 2
    for v in range(count):
        factor_V[v] = (1.0 + np.float64(x_V[v])) * (1.0 + np.float64(x_V[v + count]))
    while count > _FEW:
        count >>= 1
        for v in range(count):
            factor_V[v] *= factor_V[v + count]
    product = 1.0
    for v in range(count):
        product *= factor_V[v]
    return np.log(product)


def _sigmoid(logits_ET: Any, bias_T: Any, other_E: Any, sum_T: Any) -> float:
    """See `CompiledTiles.sigmoid`, for the units as if none were a target."""
    x_V, above_V, factor_V = (
        np.empty(_PIECE, np.float32),
        np.empty(_PIECE, np.float32),
        np.empty(_PIECE // 2, np.float64),
    )
    part_T, total = np.empty(len(sum_T), np.float32), 0.0
    for first_example in range(0, len(other_E), _PART):
        part_T[:] = _ZERO
        for e in range(first_example, min(first_example + _PART, len(other_E))):
            value, weight = 0.0, other_E[e]
            for first in range(0, len(sum_T), _PIECE):
                logits_V, bias_V, part_V = (
                    logits_ET[e, first : first + _PIECE],
                    bias_T[first : first + _PIECE],
                    part_T[first : first + _PIECE],
                )
                for v in range(len(part_V)):
                    z = logits_V[v] + bias_V[v]
                    x = _exponential(-z if z > _ZERO else z)
                    share = _ONE / (_ONE + x)
                    slope = weight * (x * share if z < _ZERO else share)
                    logits_V[v] = slope
                    part_V[v] += slope
                    x_V[v], above_V[v] = x, _ZERO if z < _ZERO else z
                for v in range(len(part_V), _PIECE):
                    x_V[v], above_V[v] = _ZERO, _ZERO
                value += _log_of_product(x_V, factor_V) + _sum(above_V)
            total += value * np.float64(weight)
        for t in range(len(sum_T)):
            sum_T[t] += part_T[t]
    return total


def _sigmoid_targets(
    z_Z: Any,
    examples_Z: Any,
    units_Z: Any,
    first: Any,
    values_Z: Any,
    target_E: Any,
    other_E: Any,
    slopes_ET: Any,
    sum_T: Any,
) -> float:
    """Puts the targets' slopes in the place of those that `_sigmoid` gave; what that changes of the loss."""
    change = 0.0
    for n in range(len(z_Z)):
        z, e, t = z_Z[n], examples_Z[n], units_Z[n] - first
        value = values_Z[n] if len(values_Z) > 0 else _ONE
        other = other_E[e]
        weight = target_E[e] if value > _ZERO else other
        x = _exponential(-z if z > _ZERO else z)
        share = _ONE / (_ONE + x)
        a = x * share if z < _ZERO else share
        softplus = np.log1p(np.float64(x)) + np.float64(_ZERO if z < _ZERO else z)
        change += (softplus - np.float64(value) * np.float64(z)) * np.float64(weight) - softplus * np.float64(
            other
        )
        if _stays(n, examples_Z, units_Z):
            slope = (a - value) * weight
            slopes_ET[e, t] = slope
            sum_T[t] += slope - a * other
    return change


def _softmax_sums(logits_ET: Any, bias_T: Any, peak_E: Any, total_E: Any) -> None:
    """See `CompiledTiles.add_softmax_sums`."""
    z_T, fold_T = np.empty(len(bias_T), np.float32), np.empty(len(bias_T) + 1, np.float32)
    for e in range(len(peak_E)):
        for t in range(len(bias_T)):
            z_T[t] = logits_ET[e, t] + bias_T[t]
            fold_T[t] = z_T[t]
        fold_T[len(bias_T)] = peak_E[e]
        peak = _peak(fold_T)
        for t in range(len(bias_T)):
            z_T[t] = _exponential(z_T[t] - peak)
        total_E[e] = total_E[e] * np.exp(np.float64(peak_E[e]) - np.float64(peak)) + _sum(z_T)
        peak_E[e] = peak


def _softmax(logits_ET: Any, bias_T: Any, log_sum_E: Any, coupling_E: Any, sum_T: Any) -> None:
    """See `CompiledTiles.softmax`."""
    part_T = np.empty(len(bias_T), np.float32)
    for first_example in range(0, len(log_sum_E), _PART):
        part_T[:] = _ZERO
        for e in range(first_example, min(first_example + _PART, len(log_sum_E))):
            log_sum, coupling = log_sum_E[e], coupling_E[e]
            for t in range(len(bias_T)):
                delta = _exponential(logits_ET[e, t] + bias_T[t] - log_sum) * coupling
                logits_ET[e, t] = delta
                part_T[t] += delta
        for t in range(len(bias_T)):
            sum_T[t] += part_T[t]


def _softmax_pulls(
    z_Z: Any,
    examples_Z: Any,
    units_Z: Any,
    first: Any,
    pulls_Z: Any,
    log_sum_E: Any,
    coupling_E: Any,
    deltas_ET: Any,
    sum_T: Any,
) -> None:
    """Takes the targets' pulls from what `_softmax` gave."""
    for n in range(len(z_Z)):
        e, t = examples_Z[n], units_Z[n] - first
        if _stays(n, examples_Z, units_Z):
            deltas_ET[e, t] = _exponential(z_Z[n] - log_sum_E[e]) * coupling_E[e] - pulls_Z[n]
            sum_T[t] -= pulls_Z[n]


def _gather(logits_ET: Any, bias_T: Any, examples_Z: Any, units_Z: Any, first: Any, z_Z: Any) -> None:
    """The targets' logits."""
    for n in range(len(z_Z)):
        t = units_Z[n] - first
        z_Z[n] = logits_ET[examples_Z[n], t] + bias_T[t]


def _whole_sigmoid(gather: Any, others: Any, targets: Any) -> Kernel:
    """All of `CompiledTiles.sigmoid` in one call: what Python does between calls, threads do one after
    another.
    """

    def whole_sigmoid(
        logits_ET: Any,
        bias_T: Any,
        examples_Z: Any,
        units_Z: Any,
        first: Any,
        values_Z: Any,
        target_E: Any,
        other_E: Any,
        sum_T: Any,
    ) -> float:
        z_Z = np.empty(len(units_Z), np.float32)
        gather(logits_ET, bias_T, examples_Z, units_Z, first, z_Z)
        loss: float = others(logits_ET, bias_T, other_E, sum_T)
        loss += targets(z_Z, examples_Z, units_Z, first, values_Z, target_E, other_E, logits_ET, sum_T)
        return loss

    return whole_sigmoid


def _whole_sums(gather: Any, sums: Any) -> Kernel:
    """All of `CompiledTiles.add_softmax_sums`."""

    def whole_sums(
        logits_ET: Any,
        bias_T: Any,
        examples_Z: Any,
        units_Z: Any,
        first: Any,
        z_Z: Any,
        peak_E: Any,
        total_E: Any,
    ) -> None:
        sums(logits_ET, bias_T, peak_E, total_E)
        gather(logits_ET, bias_T, examples_Z, units_Z, first, z_Z)

    return whole_sums


def _whole_softmax(gather: Any, others: Any, targets: Any) -> Kernel:
    """All of `CompiledTiles.softmax`."""

    def whole_softmax(
        logits_ET: Any,
        bias_T: Any,
        examples_Z: Any,
        units_Z: Any,
        first: Any,
        pulls_Z: Any,
        log_sum_E: Any,
        coupling_E: Any,
        sum_T: Any,
    ) -> None:
        z_Z = np.empty(len(units_Z), np.float32)
        gather(logits_ET, bias_T, examples_Z, units_Z, first, z_Z)
        others(logits_ET, bias_T, log_sum_E, coupling_E, sum_T)
        targets(z_Z, examples_Z, units_Z, first, pulls_Z, log_sum_E, coupling_E, logits_ET, sum_T)

    return whole_softmax


@dataclass(frozen=True)
class Entries:
    """The targets in a tile in order of units, then examples: int64 [Z] each, units counted from where the
    tile's `first` is.
    """

    examples_Z: np.ndarray
    units_Z: np.ndarray
    first: int = 0

    def within(self, span: slice, first: int) -> "Entries":
        """Those of a tile that begins at the unit `first`, which are at `span` among these."""
        return Entries(self.examples_Z[span], self.units_Z[span], first)


class CompiledTiles:
    """What is computed of a tile's logits, float32 [E, T], without the biases; the slopes take the logits'
    place.

    bias_T: float32, or None. Sums over examples are added within parts of 64, then over these. What is the
    same for many tiles comes as
    arrays: to make one of a tensor takes as long as some thousand logits.
    """

    def __init__(self) -> None:
        gather, sigmoid, targets, sums, softmax, pulls = (
            register_jitable(named_for(kernel))
            for kernel in (_gather, _sigmoid, _sigmoid_targets, _softmax_sums, _softmax, _softmax_pulls)
        )
        row, wide = "float32[::1]", "float64[::1]"
        asked = f"float32[:, ::1], {row}, int64[::1], int64[::1], int64, {row}"
        self._sigmoid = compile_for(
            _whole_sigmoid(gather, sigmoid, targets), f"float64({asked}, {row}, {row}, {row})"
        )
        self._sums = compile_for(_whole_sums(gather, sums), f"void({asked}, {row}, {wide})")
        self._softmax = compile_for(
            _whole_softmax(gather, softmax, pulls), f"void({asked}, {row}, {row}, {row})"
        )

    def sigmoid(
        self,
        logits_ET: Tensor,
        bias_T: Tensor | None,
        entries: Entries,
        values_Z: np.ndarray | None,
        target_weight_E: np.ndarray,
        other_weight_E: np.ndarray,
    ) -> tuple[float, Tensor]:
        """Cross-entropy under a sigmoid: the weighted loss and the slopes' sums over examples, float32 [T].

        values_Z: float32, the targets; None: ones. An example's targets above zero count `target_weight_E`,
        all else `other_weight_E`.
        """
        sum_T = torch.zeros(logits_ET.shape[1])
        values = _NO_VALUES if values_Z is None else values_Z
        asked = (*_tile(logits_ET, bias_T, entries), values, target_weight_E, other_weight_E)
        return self._sigmoid(*asked, sum_T.numpy()), sum_T

    def add_softmax_sums(
        self,
        logits_ET: Tensor,
        bias_T: Tensor | None,
        entries: Entries,
        z_Z: np.ndarray,
        peak_E: np.ndarray,
        total_E: np.ndarray,
    ) -> None:
        """The targets' logits are put into z_Z, float32; the tile, which stays as it is, is counted in the
        running sums, in place.

        peak_E: float32, the largest logit so far. total_E: float64, the sum so far of exp(z - peak).
        """
        self._sums(*_tile(logits_ET, bias_T, entries), z_Z, peak_E, total_E)

    def softmax(
        self,
        logits_ET: Tensor,
        bias_T: Tensor | None,
        entries: Entries,
        pulls_Z: np.ndarray,
        log_sum_E: np.ndarray,
        coupling_E: np.ndarray,
    ) -> Tensor:
        """The slopes p * coupling, less the targets' pulls: their sums over examples, float32 [T].
        log_sum_E: of the denominator of p.
        """
        sum_T = torch.zeros(logits_ET.shape[1])
        self._softmax(*_tile(logits_ET, bias_T, entries), pulls_Z, log_sum_E, coupling_E, sum_T.numpy())
        return sum_T


@made_once
def compiled_tiles() -> CompiledTiles:
    """The passes over tiles, compiled once."""
    return CompiledTiles()


def _tile(logits_ET: Tensor, bias_T: Tensor | None, entries: Entries) -> tuple[Any, ...]:
    """The arguments that all kernels take first."""
    bias = np.zeros(logits_ET.shape[1], np.float32) if bias_T is None else bias_T.numpy()
    return logits_ET.numpy(), bias, entries.examples_Z, entries.units_Z, entries.first
