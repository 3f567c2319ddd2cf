"""Measures of nearness: their exact values, and bounds on the error of float32 products."""

from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.fixed_point import from_fixed, peaks_of, scales_for, to_fixed

Measure: TypeAlias = Literal["dot", "cosine", "l2"]
"""The product of two vectors, the cosine of their angle, or their Euclidean distance."""

MEASURES: tuple[Measure, ...] = get_args(Measure)

_ROUNDING = 2.0**-24
"""Largest relative error of rounding to float32."""

_SMALLEST = 2.0**-125
"""Bound on the underflow of a term: twice the smallest normal float32."""
_LARGEST = 2.0**126
"""A product below this is finite."""

_FURTHER_ROUNDINGS = 16
"""Roundings besides those of a product: of lengths, of divisions, and of the last additions."""

_PAIRS_NUMBERS = 2**20
"""Numbers in the pairs that are processed at once, in float64."""


def nearness(measure: Measure, queries_PD: Tensor, vectors_PD: Tensor) -> Tensor:
    """Compute the nearness of P pairs of vectors, float64 [P]; larger is nearer.

    It is the product, the cosine, or for "l2" minus the squared distance. Each result depends on its two
    vectors alone, not on other pairs or on the machine: float64 holds the product of two float32 exactly, and
    the sum over D is in fixed point, where each term loses at most the largest term times D 2^-60. The cosine
    is the product divided by both lengths, and 0 if a length is 0.
    """
    step = max(1, _PAIRS_NUMBERS // max(queries_PD.shape[1], 1))
    pairs = zip(torch.split(queries_PD, step), torch.split(vectors_PD, step), strict=True)
    return torch.cat([_scores(measure, query.double(), vector.double()) for query, vector in pairs])


def _scores(measure: Measure, queries_PD: Tensor, vectors_PD: Tensor) -> Tensor:
    if measure == "l2":
        return -_row_sums((queries_PD - vectors_PD).square())
    product_P = _row_sums(queries_PD * vectors_PD)
    if measure == "dot":
        return product_P
    lengths_P = _root(_row_sums(queries_PD.square())) * _root(_row_sums(vectors_PD.square()))
    return torch.where(lengths_P > 0, product_P / lengths_P, 0.0)


def _row_sums(terms_PD: Tensor) -> Tensor:
    peaks_P1 = peaks_of(terms_PD)
    scales_P1 = scales_for(peaks_P1, terms_PD.shape[1])
    total_P1 = to_fixed(terms_PD, scales_P1).sum(dim=1, keepdim=True)
    return from_fixed(total_P1, scales_P1, peaks_P1, torch.float64)[:, 0]


def shown(measure: Measure, nearness_EK: Tensor) -> Tensor:
    """Convert nearness to the scores that users see: the distance for "l2"."""
    return _root(-nearness_EK) if measure == "l2" else nearness_EK


def _root(values: Tensor) -> Tensor:
    """Correctly rounded square roots, float64; those of torch are not, on some CPUs."""
    return torch.from_numpy(np.sqrt(values.numpy())) if values.device.type == "cpu" else values.sqrt()


def lengths(vectors_ND: Tensor) -> Tensor:
    """Euclidean lengths, float64 [N]."""
    return vectors_ND.double().square().sum(dim=1).sqrt()


def approach(measure: Measure, queries_ED: Tensor) -> Tensor:
    """Operands of the float32 products, float32 [E, D]: the queries, scaled to length 1 for "cosine"."""
    if measure != "cosine":
        return queries_ED
    length_E1 = lengths(queries_ED)[:, None]
    return torch.where(length_E1 > 0, queries_ED / length_E1, 0.0).float()


def ceiling(
    measure: Measure, product_E: Tensor, direct_ED: Tensor, longest: float, shortest: float
) -> Tensor:
    """Bound the nearness of all vectors whose float32 product is at most `product_E`.

    The error of a float32 product of D numbers, added in any order, is at most D u / (1 - D u) |x| |y| with
    u = 2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). The few further roundings
    count as more numbers.

    Args:
        measure: The measure.
        product_E: Largest product, as `Part.products` computes it, float32 [E].
        direct_ED: The result of `approach`.
        longest: Length of the longest vector.
        shortest: Length of the shortest vector, apart from those of length 0.

    Returns:
        float64 [E]; infinite if a product may have left the range of float32.
    """
    length_E, numbers = lengths(direct_ED), direct_ED.shape[1]
    unit = (numbers + _FURTHER_ROUNDINGS) * _ROUNDING
    underflow_E = numbers * _SMALLEST * (1 + length_E + longest)
    if measure == "cosine":
        largest_E = torch.full_like(length_E, longest + 1 / shortest)
        error_E = unit / (1 - unit) + underflow_E / shortest
    else:
        largest_E = length_E * longest if measure == "dot" else (length_E + longest).square()
        error_E = unit / (1 - unit) * largest_E + underflow_E
    nearness_E = product_E.double() if measure != "l2" else 2 * product_E.double() - length_E.square()
    return torch.where(largest_E < _LARGEST, nearness_E + error_E, torch.inf)
