"""Tiles of an output on a CPU: one compiled pass turns logits into loss and slopes. Needs Numba.

Logits are float32 [E, T] without the biases, and slopes overwrite them; `entries` are the targets in the
tile. Sums over examples are added within parts of 64 examples, then over the parts. Arguments that are the
same for many tiles are arrays, because converting a tensor takes as long as a thousand logits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numba.extending import register_jitable

from widenet.kernels.compiled import compile_for, made_once, named_for

if TYPE_CHECKING:
    from torch import Tensor

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
"""Cephes' expf: exp(r) = 1 + r + r^2 * polynomial for |r| <= log(2) / 2.

Adding _TO_WHOLE rounds to a whole number, and arguments below _LEAST count as _LEAST. Without fusing and
reordering, the bits are the same on every processor.
"""

_PIECE, _PART, _FEW = 256, 64, 16
"""Units whose factors are multiplied before taking a logarithm (the product is at most 2^256); examples whose
slopes are added together first; and the count below which numbers are added one by one.
"""

Kernel = Callable[..., Any]
_NO_VALUES = np.zeros(0, np.float32)


@register_jitable
def _exponential(x: Any) -> Any:
    """Return exp(x) for x up to about 0, within 2 units in the last place; NaN stays NaN."""
    x = _LEAST if x < _LEAST else x
    shifted = np.float32(x * _PER_LOG_TWO + _TO_WHOLE)
    whole = shifted - _TO_WHOLE
    r = (x - whole * _LOG_TWO_HIGH) - whole * _LOG_TWO_LOW
    series = (((((_C0 * r + _C1) * r + _C2) * r + _C3) * r + _C4) * r + _C5) * (r * r) + r + _ONE
    return series * np.int32((shifted.view(np.int32) + 127) << 23).view(np.float32)


@register_jitable
def _is_last_duplicate(z: Any, examples_Z: Any, units_Z: Any) -> Any:
    """Return whether an entry's slope counts: if a target occurs twice, the last entry does."""
    return z + 1 == len(units_Z) or units_Z[z + 1] != units_Z[z] or examples_Z[z + 1] != examples_Z[z]


@register_jitable
def _sum(number_N: Any) -> Any:
    """Return the sum, by repeatedly folding the numbers in half; overwrites them."""
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


@register_jitable
def _peak(number_N: Any) -> Any:
    """Return the largest of one or more numbers; overwrites them."""
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


@register_jitable
def _log_of_product(x_V: Any, factor_V: Any) -> Any:
    """Return the sum of log(1 + x) over a piece; overwrites `factor_V`."""
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
    """See `sigmoid`; treats all units as if none were a target."""
    x_V, above_V = np.empty(_PIECE, np.float32), np.empty(_PIECE, np.float32)
    factor_V = np.empty(_PIECE // 2, np.float64)
    part_T, total = np.empty(len(sum_T), np.float32), 0.0
    for first_example in range(0, len(other_E), _PART):
        part_T[:] = _ZERO
        for e in range(first_example, min(first_example + _PART, len(other_E))):
            value, weight = 0.0, other_E[e]
            for first in range(0, len(sum_T), _PIECE):
                logits_V = logits_ET[e, first : first + _PIECE]
                bias_V, part_V = bias_T[first : first + _PIECE], part_T[first : first + _PIECE]
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
    """Replace the targets' slopes in the result of `_sigmoid`; return the change of the loss."""
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
        if _is_last_duplicate(n, examples_Z, units_Z):
            slope = (a - value) * weight
            slopes_ET[e, t] = slope
            sum_T[t] += slope - a * other
    return change


def _softmax_sums(logits_ET: Any, bias_T: Any, peak_E: Any, total_E: Any) -> None:
    """See `add_softmax_sums`."""
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
    """See `softmax`."""
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
    """Subtract the targets' pulls from the result of `_softmax`."""
    for n in range(len(z_Z)):
        e, t = examples_Z[n], units_Z[n] - first
        if _is_last_duplicate(n, examples_Z, units_Z):
            deltas_ET[e, t] = _exponential(z_Z[n] - log_sum_E[e]) * coupling_E[e] - pulls_Z[n]
            sum_T[t] -= pulls_Z[n]


def _gather(logits_ET: Any, bias_T: Any, examples_Z: Any, units_Z: Any, first: Any, z_Z: Any) -> None:
    """Write the targets' logits into z_Z."""
    for n in range(len(z_Z)):
        t = units_Z[n] - first
        z_Z[n] = logits_ET[examples_Z[n], t] + bias_T[t]


def _whole_sigmoid(gather: Any, others: Any, targets: Any) -> Kernel:
    """All of `sigmoid` in one call: threads take turns to run Python between calls."""

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
    """All of `add_softmax_sums`."""

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
    """All of `softmax`."""

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
    ) -> float:
        z_Z = np.empty(len(units_Z), np.float32)
        gather(logits_ET, bias_T, examples_Z, units_Z, first, z_Z)
        others(logits_ET, bias_T, log_sum_E, coupling_E, sum_T)
        targets(z_Z, examples_Z, units_Z, first, pulls_Z, log_sum_E, coupling_E, logits_ET, sum_T)
        return 0.0

    return whole_softmax


Pass = Literal["sigmoid", "softmax_sums", "softmax"]


def whole_pass(name: Pass) -> Kernel:
    """Return a pass over a tile as a function that Numba compiles into others."""
    parts: dict[Pass, tuple[Kernel, tuple[Kernel, ...]]] = {
        "sigmoid": (_whole_sigmoid, (_gather, _sigmoid, _sigmoid_targets)),
        "softmax_sums": (_whole_sums, (_gather, _softmax_sums)),
        "softmax": (_whole_softmax, (_gather, _softmax, _softmax_pulls)),
    }
    whole, kernels = parts[name]
    compiled: Kernel = register_jitable(whole(*(register_jitable(named_for(kernel)) for kernel in kernels)))
    return compiled


@made_once
def compiled_pass(name: Pass) -> Kernel:
    """Return a pass over a tile, compiled at the first call."""
    row, end = "float32[::1]", "float64[::1]" if name == "softmax_sums" else "float32[::1]"
    arguments = f"float32[:, ::1], {row}, int64[::1], int64[::1], int64, {row}, {row}, {end}"
    if name == "softmax_sums":
        return compile_for(whole_pass(name), f"void({arguments})")
    return compile_for(whole_pass(name), f"float64({arguments}, {row})")


@dataclass(frozen=True)
class Entries:
    """The targets in a tile, in order of units, then examples.

    Attributes:
        examples_Z: int64.
        units_Z: Units of the shard, int64.
        first: First unit of the tile.
    """

    examples_Z: np.ndarray
    units_Z: np.ndarray
    first: int = 0

    def within(self, span: slice, first: int) -> "Entries":
        """Return the entries of a tile that begins at unit `first`, which are at `span` among these."""
        return Entries(self.examples_Z[span], self.units_Z[span], first)


def sigmoid(
    logits_ET: "Tensor",
    bias_T: "Tensor | None",
    entries: Entries,
    values_Z: np.ndarray | None,
    target_weight_E: np.ndarray,
    other_weight_E: np.ndarray,
) -> "tuple[float, Tensor]":
    """Return the weighted cross-entropy under a sigmoid, and the slopes' sums over examples, float32 [T].

    `values_Z` are the targets' values, float32 (None: ones). Targets above zero have the loss weight
    `target_weight_E`, all other units `other_weight_E`.
    """
    sum_T = logits_ET.new_zeros(logits_ET.shape[1])
    values = _NO_VALUES if values_Z is None else values_Z
    arguments = (*_tile(logits_ET, bias_T, entries), values, target_weight_E, other_weight_E)
    return compiled_pass("sigmoid")(*arguments, sum_T.numpy()), sum_T


def add_softmax_sums(
    logits_ET: "Tensor",
    bias_T: "Tensor | None",
    entries: Entries,
    z_Z: np.ndarray,
    peak_E: np.ndarray,
    total_E: np.ndarray,
) -> None:
    """Write the targets' logits into z_Z, and add the tile, which does not change, to the running sums.

    The sums are the largest logit so far, `peak_E` float32, and the sum so far of exp(z - peak),
    `total_E` float64; both change in place.
    """
    compiled_pass("softmax_sums")(*_tile(logits_ET, bias_T, entries), z_Z, peak_E, total_E)


def softmax(
    logits_ET: "Tensor",
    bias_T: "Tensor | None",
    entries: Entries,
    pulls_Z: np.ndarray,
    log_sum_E: np.ndarray,
    coupling_E: np.ndarray,
) -> "Tensor":
    """Return the sums over examples, float32 [T], of the slopes p * coupling less the targets' pulls.

    `log_sum_E` is the logarithm of the denominator of p, and `coupling_E` the sum of each example's
    pulls.
    """
    sum_T = logits_ET.new_zeros(logits_ET.shape[1])
    compiled_pass("softmax")(
        *_tile(logits_ET, bias_T, entries), pulls_Z, log_sum_E, coupling_E, sum_T.numpy()
    )
    return sum_T


def _tile(logits_ET: "Tensor", bias_T: "Tensor | None", entries: Entries) -> tuple[Any, ...]:
    """Return the first arguments of all kernels."""
    bias = np.zeros(logits_ET.shape[1], np.float32) if bias_T is None else bias_T.numpy()
    return logits_ET.numpy(), bias, entries.examples_Z, entries.units_Z, entries.first
