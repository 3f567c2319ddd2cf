"""Every optimizer's step of single numbers: the arithmetic of `native/steps.cpp`."""

import triton
import triton.language as tl


@triton.jit
def advance_at(
    weight, first, second, place, inside, gradient, fade, penalties, constants, KIND: tl.constexpr
):
    """Make a step of some numbers in memory. first, second: states, or None; others as for `advance`."""
    w = tl.load(weight + place, mask=inside, other=0.0)
    s, t = w, w
    if first is not None:
        s = tl.load(first + place, mask=inside, other=0.0)
    if second is not None:
        t = tl.load(second + place, mask=inside, other=0.0)
    w, s, t = advance(w, gradient, s, t, fade, penalties, constants, KIND)
    tl.store(weight + place, w, mask=inside)
    if first is not None:
        tl.store(first + place, s, mask=inside)
    if second is not None:
        tl.store(second + place, t, mask=inside)


@triton.jit
def advance(weight, gradient, first, second, fade, penalties, constants, KIND: tl.constexpr):
    """Return weight and states after a step, float32.

    fade: factor on the states before the step. penalties: scale, l2, l1, keep of
    `kernels.passes.Penalties`. constants: `Formula.constants`. A state that the optimizer lacks may
    be any number.
    """
    scale, l2, l1, keep = penalties
    gradient = scale * gradient
    sign = (weight > 0.0).to(tl.float32) - (weight < 0.0).to(tl.float32)
    gradient = gradient + tl.where(l2 > 0.0, l2 * weight, 0.0) + l1 * sign
    return _element(keep * weight, gradient, fade * first, fade * second, constants, KIND)


@triton.jit
def _element(w, g, s, t, c, KIND: tl.constexpr):
    if KIND == "sgd":
        return w - c[0] * g, s, t
    elif KIND == "momentum" or KIND == "nesterov":
        velocity = c[0] * s + g
        ahead = tl.where(c[1] > 0.0, c[1] * velocity + g, velocity)
        return w - c[2] * ahead, velocity, t
    elif KIND == "adagrad" or KIND == "rmsprop":
        square = c[0] * s + c[1] * (g * g)
        return w - c[3] * tl.div_rn(g, tl.sqrt_rn(tl.where(square < c[4], c[4], square)) + c[2]), square, t
    elif KIND == "adadelta":
        square = c[0] * s + c[1] * (g * g)
        step_held, held = tl.where(t < c[4], c[4], t), tl.where(square < c[4], c[4], square)
        change = tl.div_rn(tl.sqrt_rn(step_held + c[2]), tl.sqrt_rn(held + c[2])) * g
        return w - c[3] * change, square, c[0] * t + c[1] * (change * change)
    else:
        tl.static_assert(KIND == "adam" or KIND == "adamw")
        mean = s + c[0] * (g - s)
        square = c[1] * t + c[2] * (g * g)
        return w - c[3] * tl.div_rn(mean, tl.sqrt_rn(square) * c[4] + c[5]), mean, square
