"""How near two vectors are: the exact rule, and how far a float32 product may be from it."""

from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from widenet.kernels.fixed_point import from_fixed, peaks_of, scales_for, to_fixed

Measure: TypeAlias = Literal["dot", "cosine", "l2"]
"""The product of two vectors; that of their directions; the length of their difference, of which less is
nearer.
"""

MEASURES: tuple[Measure, ...] = get_args(Measure)

_ROUNDING = 2.0**-24
"""What one rounding of a float32 changes at most, relative to it."""

_SMALLEST, _LARGEST = 2.0**-125, 2.0**126
"""More than underflow takes of a term: twice the smallest float32 of full precision; and what a product
stays below that is finite.
"""

_FURTHER_ROUNDINGS = 16
"""Beside those of a product: of lengths, of divisions, and of what is added last."""

_PAIRS_NUMBERS = 2**20
"""Numbers of pairs that are worked on at once, in float64."""


def nearness(measure: Measure, queries_PD: Tensor, vectors_PD: Tensor) -> Tensor:
    """How near P pairs of vectors are, float64 [P], more is nearer: for "l2" minus the squared distance.

    Every number depends on its two vectors alone: not on what is computed beside it, nor on the machine.
    Products and squares are float64, which holds a product of two float32 whole; their sum over D is exact
    but for what lies below the largest of them times D 2^-60, cut from each. For "cosine" it is divided by
    both lengths; a vector without length has the nearness 0.
    """
    step = max(1, _PAIRS_NUMBERS // max(queries_PD.shape[1], 1))
    pairs = zip(torch.split(queries_PD, step), torch.split(vectors_PD, step), strict=True)
    return torch.cat([_nearness(measure, query.double(), vector.double()) for query, vector in pairs])


def _nearness(measure: Measure, queries_PD: Tensor, vectors_PD: Tensor) -> Tensor:
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
    """Nearness as scores that a person reads: of "l2" the distance."""
    return _root(-nearness_EK) if measure == "l2" else nearness_EK


def _root(values: Tensor) -> Tensor:
    """The float64 that is nearest to each square root. On some CPUs torch's own is the second nearest."""
    return torch.from_numpy(np.sqrt(values.numpy())) if values.device.type == "cpu" else values.sqrt()


def lengths(vectors_ND: Tensor) -> Tensor:
    """float64 [N]."""
    return vectors_ND.double().square().sum(dim=1).sqrt()


def approach(measure: Measure, queries_ED: Tensor) -> Tensor:
    """What of the queries meets the vectors in a float32 product: their directions for "cosine"."""
    if measure != "cosine":
        return queries_ED
    length_E1 = lengths(queries_ED)[:, None]
    return torch.where(length_E1 > 0, queries_ED / length_E1, 0.0).float()


def ceiling(
    measure: Measure, product_E: Tensor, direct_ED: Tensor, longest: float, shortest: float
) -> Tensor:
    """What the nearness of a vector is at most, float64 [E], if a float32 product of it came to no more than
    `product_E`.

    direct_ED: what `approach` gives. The product is what `Part.products` gives.
    longest, shortest: lengths between which all vectors lie, but for those of length 0. The error of a
    float32 product of D numbers, in whatever order they are added, is at most D u / (1 - D u) |x| |y|, u =
    2^-24 (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); a few roundings more are
    counted as longer vectors. Infinite where the product may have left the range of float32.
    """
    length_E, numbers = lengths(direct_ED), direct_ED.shape[1]
    unit = (numbers + _FURTHER_ROUNDINGS) * _ROUNDING
    lost = numbers * _SMALLEST * (1 + length_E + longest)
    if measure == "cosine":
        error_E, largest_E = (
            unit / (1 - unit) + lost / shortest,
            torch.full_like(length_E, longest + 1 / shortest),
        )
    else:
        largest_E = length_E * longest if measure == "dot" else (length_E + longest).square()
        error_E = unit / (1 - unit) * largest_E + lost
    known_E = product_E.double() if measure != "l2" else 2 * product_E.double() - length_E.square()
    return torch.where(largest_E < _LARGEST, known_E + error_E, torch.inf)
