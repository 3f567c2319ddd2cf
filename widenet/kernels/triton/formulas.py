"""Activations and losses of single units: the formulas of model/activations.py and model/losses.py."""

import triton
import triton.language as tl


@triton.jit
def _tanh(z):
    """Return tanh(z); small numbers use the series, because exp would lose their digits."""
    share = tl.exp(-2.0 * tl.abs(z))
    far = (1.0 - share) / (1.0 + share)
    y = z * z
    near = z * (1.0 + y * (-1.0 / 3 + y * (2.0 / 15 + y * (-17.0 / 315 + y * (62.0 / 2835)))))
    return tl.where(tl.abs(z) < 0.25, near, tl.where(z < 0.0, -far, far))


@triton.jit
def _softplus(z):
    """Return max(z, 0) + log(1 + e) with e = exp(-|z|), corrected for the rounding of 1 + e."""
    e = tl.exp(-tl.abs(z))
    whole = 1.0 + e
    rounded = whole - 1.0
    log = tl.where(rounded == 0.0, e, tl.log(whole) * (e / tl.where(rounded == 0.0, 1.0, rounded)))
    return tl.maximum(z, 0.0) + log


@triton.jit
def _expm1(z):
    """Return exp(z) - 1 for z up to 0."""
    half = _tanh(0.5 * z)
    return 2.0 * half / (1.0 - half)


@triton.jit
def activated(z, numbers, KIND: tl.constexpr):
    """Return the activations of logits. numbers: leaky_relu's slope, or elu's alpha and scale."""
    if KIND == "linear":
        return z
    elif KIND == "sigmoid":
        return tl.sigmoid(z)
    elif KIND == "tanh":
        return _tanh(z)
    elif KIND == "relu":
        return tl.maximum(z, 0.0)
    elif KIND == "leaky_relu":
        return z * tl.where(z > 0.0, tl.maximum(numbers[0], 1.0), tl.minimum(numbers[0], 1.0))
    elif KIND == "elu":
        return numbers[1] * tl.where(z > 0.0, z, numbers[0] * _expm1(tl.minimum(z, 0.0)))
    elif KIND == "softplus":
        return _softplus(z)
    elif KIND == "softsign":
        return z / (1.0 + tl.abs(z))
    elif KIND == "silu":
        return z * tl.sigmoid(z)
    else:
        tl.static_assert(KIND == "gelu")
        return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))


@triton.jit
def slope(z, a, numbers, KIND: tl.constexpr):
    """Return the derivatives of the activations `a` of logits."""
    if KIND == "linear":
        return tl.full(z.shape, 1.0, tl.float32)
    elif KIND == "sigmoid":
        return a * (1.0 - a)
    elif KIND == "tanh":
        return 1.0 - a * a
    elif KIND == "relu":
        return (z > 0.0).to(tl.float32)
    elif KIND == "leaky_relu":
        return tl.where(z > 0.0, tl.maximum(numbers[0], 1.0), tl.minimum(numbers[0], 1.0))
    elif KIND == "elu":
        return tl.where(z > 0.0, numbers[1], a + numbers[1] * numbers[0])
    elif KIND == "softplus":
        return tl.sigmoid(z)
    elif KIND == "softsign":
        root = 1.0 + tl.abs(z)
        return 1.0 / (root * root)
    elif KIND == "silu":
        gate = tl.sigmoid(z)
        return gate * (1.0 + z * (1.0 - gate))
    else:
        tl.static_assert(KIND == "gelu")
        density = tl.exp(-0.5 * z * z) * 0.3989422804014327
        return 0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * density


@triton.jit
def other_value(z, a, numbers, LOSS: tl.constexpr):
    """Return value and slope of units that are no target.

    The slope is by the logit for cross-entropies, else by the activation.
    """
    if LOSS == "cross_entropy":
        return _softplus(z), a
    elif LOSS == "scaled_marginal_cross_entropy":
        strength = tl.where(a > numbers[1], numbers[3], 0.0)
        return strength * _softplus(z), strength * a
    elif LOSS == "l2":
        return 0.5 * a * a, a
    elif LOSS == "l1":
        return tl.abs(a), _sign(a)
    elif LOSS == "hinge":
        value = tl.maximum(1.0 + a, 0.0)
        return value, tl.where(value > 0.0, 1.0, 0.0)
    elif LOSS == "l2_hinge":
        distance = tl.maximum(a, 0.0)
        return 0.5 * distance * distance, distance
    else:
        tl.static_assert(LOSS == "cosine_contrastive")
        return tl.maximum(a - numbers[0], 0.0), (a > numbers[0]).to(tl.float32)


@triton.jit
def target_value(z, a, t, numbers, LOSS: tl.constexpr):
    """Return value and slope of units with a target t. numbers: see `model.fused_tiles.formula_of`."""
    if LOSS == "cross_entropy":
        return _softplus(z) - t * z, a - t
    elif LOSS == "scaled_marginal_cross_entropy":
        other, other_slope = other_value(z, a, numbers, LOSS)
        strength = tl.where(a < numbers[0], numbers[2] * tl.where(numbers[4] > 0.0, t, 1.0), 0.0)
        return tl.where(t > 0.0, strength * _softplus(-z), other), tl.where(
            t > 0.0, strength * (a - 1.0), other_slope
        )
    elif LOSS == "l2":
        return 0.5 * (a - t) * (a - t), a - t
    elif LOSS == "l1":
        return tl.abs(a - t), _sign(a - t)
    elif LOSS == "hinge":
        value = tl.maximum(1.0 - t * a, 0.0)
        return value, tl.where(value > 0.0, -t, 0.0)
    elif LOSS == "l2_hinge":
        beyond = a - tl.abs(t)
        distance = tl.where(t > 0.0, tl.minimum(beyond, 0.0), tl.maximum(beyond, 0.0))
        return 0.5 * distance * distance, distance
    else:
        tl.static_assert(LOSS == "cosine_contrastive")
        other, other_slope = other_value(z, a, numbers, LOSS)
        return tl.where(t > 0.0, 1.0 - a, other), tl.where(t > 0.0, -1.0, other_slope)


@triton.jit
def _sign(number):
    return (number > 0.0).to(tl.float32) - (number < 0.0).to(tl.float32)


@triton.jit
def of_others(z, formula_numbers, ACTIVATION: tl.constexpr, LOSS: tl.constexpr, BY_LOGIT: tl.constexpr):
    """Return value and slope by the logit of units that are no target.

    formula_numbers: the activation's, then the loss's.
    """
    of_activation, numbers = formula_numbers
    a = activated(z, of_activation, ACTIVATION)
    value, by = other_value(z, a, numbers, LOSS)
    if not BY_LOGIT:
        by = by * slope(z, a, of_activation, ACTIVATION)
    return value, by


@triton.jit
def of_targets(z, t, formula_numbers, ACTIVATION: tl.constexpr, LOSS: tl.constexpr, BY_LOGIT: tl.constexpr):
    """Return value and slope by the logit of units with a target t."""
    of_activation, numbers = formula_numbers
    a = activated(z, of_activation, ACTIVATION)
    value, by = target_value(z, a, t, numbers, LOSS)
    if not BY_LOGIT:
        by = by * slope(z, a, of_activation, ACTIVATION)
    return value, by
