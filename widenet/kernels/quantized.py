"""Rows of numbers in 8 bits, and products of them, which are exact: the definition, in plain torch."""

import torch
from torch import Tensor

MOST_COLUMNS = 2**16
"""Longest rows: the sums of their products fit into 32 bits, also where one side is shifted by 128."""

_LARGEST = 127
_EXACT_COLUMNS = 1024
"""Columns whose products add up to less than 2^24, so that float32 adds them exactly, in any order."""
_LOW_BITS = 0xFF
_SMALLEST = 2.0**-126
"""The smallest float32 of full precision."""


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
    scale_R = _scales(rows_RH.abs().amax(dim=1) / _LARGEST)
    return _rounded(rows_RH, torch.where(scale_R == 0, torch.inf, scale_R)), scale_R


def dequantized(whole_RH: Tensor, scale_R: Tensor) -> Tensor:
    """Return the numbers that `quantized` has rounded to, float32 [R, H]."""
    return whole_RH.float().mul_(scale_R[:, None])


def quantized_queries(direct_EH: Tensor) -> tuple[Tensor, Tensor]:
    """Round the vectors that enter an output, each by itself: as `quantized`, with the scale unrounded."""
    scale_E = direct_EH.abs().amax(dim=1) / _LARGEST
    return _rounded(direct_EH, scale_E), scale_E


def quantized_logits(direct_EH: Tensor, whole_TH: Tensor, factor_T: Tensor, bias_T: Tensor | None) -> Tensor:
    """Return the logits of units in 8 bits, float32 [E, T].

    A logit is the sum of products of whole numbers, which is exact and so has no order, times the unit's
    factor, times the example's scale, plus the bias; each of these operations rounds to float32.

    Args:
        direct_EH: The vectors that enter the output, float32.
        whole_TH: The units' whole numbers, int8.
        factor_T: What each unit's whole numbers are multiplied by, float32.
        bias_T: The biases, float32; None: there are none.
    """
    query_EH, scale_E = quantized_queries(direct_EH)
    logits_ET = _products(query_EH, whole_TH).mul_(factor_T).mul_(scale_E[:, None])
    return logits_ET if bias_T is None else logits_ET.add_(bias_T)


def _products(query_EH: Tensor, whole_TH: Tensor) -> Tensor:
    """Return query @ whole.T, exact but for one rounding to float32 [E, T]."""
    columns = range(0, query_EH.shape[1], _EXACT_COLUMNS)
    parts = (
        query_EH[:, start : start + _EXACT_COLUMNS].float()
        @ whole_TH[:, start : start + _EXACT_COLUMNS].float().T
        for start in columns
    )
    if len(columns) == 1:
        return next(parts)
    return sum((part.int() for part in parts), torch.zeros((), dtype=torch.int32)).float()


def _scales(least_R: Tensor) -> Tensor:
    """Round scales up to 16 significant bits; those below `_SMALLEST` become 0."""
    bits_R = torch.where(least_R < _SMALLEST, 0.0, least_R).view(torch.int32)
    return ((bits_R + _LOW_BITS) & ~_LOW_BITS).view(torch.float32)


def _rounded(rows_RH: Tensor, scale_R: Tensor) -> Tensor:
    """Return rows over their scales as whole numbers, int8; zeros where there is no number."""
    whole_RH = (rows_RH / scale_R[:, None]).round_().nan_to_num_(0.0)
    return whole_RH.clamp_(-_LARGEST, _LARGEST).to(torch.int8)
