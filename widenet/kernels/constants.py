"""Numbers of operations that are defined in torch, for compiled code, which needs no torch to be compiled."""

PIECE = 256
"""Units whose shares are folded together by `reference.softmax_sum`."""
POWER_OF_TWO = (1.32647273e-3, 9.67151299e-3, 5.55073358e-2, 0.240222424, 0.693147004, 1.0)
"""A polynomial, highest power first: 2^f for |f| <= 1/2, within 2e-7 in float32, and exactly 1 for f = 0.

The coefficients have the least largest error among those that end with 1.
"""
PER_LOG_TWO, LEAST, TO_WHOLE = 1.44269504, -86.5, 1.5 * 2**23
"""1 / log(2); arguments below LEAST count as LEAST; adding TO_WHOLE to a float32 rounds to a whole number."""

MAGNITUDE = 2**31 - 1
"""The bits of a float32 without its sign."""
MISSING = (-(2**23) ^ MAGNITUDE) << 32
"""The ranking key of the logit -inf, whose bits as an int32 are -(2^23), and of the last unit."""
