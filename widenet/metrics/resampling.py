"""Confidence intervals and p-values of means over users, by resampling the users.

All sums are sums of whole numbers below 2^53, so they have the same bits in every order. Random draws are
functions of the resample's number and the number of users alone.
"""

import numpy as np
from numpy.typing import NDArray

from widenet.randomness import stream

NUM_RESAMPLES = 2000
"""Number of resamples of users, and of sign flips."""

_ONE = 2**26
"""The number 1 in whole units; values are rounded to multiples of 2^-26."""

_USERS_A_BLOCK = 2**16
"""Users whose weighted units are added in float64, which is exact up to 2^27 of them."""

_DRAWS_A_BLOCK = 2**23
"""Weights of users that lie in memory together."""

_SEED = 0


def intervals(
    values_EM: NDArray[np.floating], level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower and upper bounds of confidence intervals of the means of M columns.

    They are percentiles of the bootstrap distribution: Efron and Tibshirani, "An Introduction to the
    Bootstrap", 1993, chapter 13. The columns are resampled together, so those of one user stay together.

    Args:
        values_EM: Values of E users, each in [-1, 1], at least one user.
        level: Confidence level, between 0 and 1.

    Returns:
        The bounds, float64 [M] each.
    """
    num_users = len(values_EM)
    units_EM = _units(values_EM)
    sums = []
    for resamples in _blocks(NUM_RESAMPLES, num_users):
        counts = [
            np.bincount(
                stream(_SEED, "bootstrap", resample).integers(0, num_users, size=num_users),
                minlength=num_users,
            )
            for resample in resamples
        ]
        sums.append(_weighted_sums(np.array(counts), units_EM))
    means_BM = np.concatenate(sums) / (_ONE * num_users)
    lower_M, upper_M = np.quantile(means_BM, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return lower_M, upper_M


def p_values(differences_EM: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the two-sided p-values of the means of M columns of paired differences.

    The null hypothesis is that a user's difference has either sign with the same probability: Fisher's
    randomization test as in Smucker, Allan and Carterette, "A comparison of statistical significance tests
    for information retrieval evaluation", CIKM 2007. For few users, all signs are enumerated. Otherwise signs
    are drawn, and the observed ones count among the drawn ones, so that no p-value is 0: Phipson and Smyth,
    "Permutation p-values should never be zero", 2010.

    Args:
        differences_EM: Differences of E users, each in [-1, 1], at least one user.
    """
    num_users = len(differences_EM)
    units_EM = _units(differences_EM)
    total_M = _weighted_sums(np.ones((1, num_users)), units_EM)[0]
    is_exact = num_users < NUM_RESAMPLES.bit_length()
    num_flips = 2**num_users if is_exact else NUM_RESAMPLES
    num_extreme_M = np.zeros(len(total_M), dtype=np.int64)
    for flips in _blocks(num_flips, num_users):
        kept = [_enumerated(flip, num_users) if is_exact else _drawn(flip, num_users) for flip in flips]
        sums_BM = 2 * _weighted_sums(np.array(kept), units_EM) - total_M
        num_extreme_M += (np.abs(sums_BM) >= np.abs(total_M)).sum(axis=0)
    if is_exact:
        return num_extreme_M / num_flips
    return (num_extreme_M + 1) / (num_flips + 1)


def _units(values_EM: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.rint(values_EM.astype(np.float64) * _ONE)


def _blocks(total: int, num_users: int) -> list[range]:
    size = max(1, _DRAWS_A_BLOCK // num_users)
    return [range(start, min(start + size, total)) for start in range(0, total, size)]


def _weighted_sums(weights_BE: NDArray[np.number], units_EM: NDArray[np.float64]) -> NDArray[np.int64]:
    """Multiply whole numbers exactly, int64 [B, M]."""
    sums_BM = np.zeros((len(weights_BE), units_EM.shape[1]), dtype=np.int64)
    for start in range(0, len(units_EM), _USERS_A_BLOCK):
        stop = start + _USERS_A_BLOCK
        sums_BM += (weights_BE[:, start:stop].astype(np.float64) @ units_EM[start:stop]).astype(np.int64)
    return sums_BM


def _drawn(flip: int, num_users: int) -> NDArray[np.uint8]:
    """Draw which users keep their sign, one bit each."""
    packed = np.frombuffer(stream(_SEED, "sign flips", flip).bytes(-(-num_users // 8)), dtype=np.uint8)
    return np.unpackbits(packed, count=num_users)


def _enumerated(flip: int, num_users: int) -> NDArray[np.int64]:
    return flip >> np.arange(num_users) & 1
