"""Optimizers' steps: the constants and the formula of each kind, by the native library, Triton or torch.

The formulas here are torch's; `native/steps.cpp` and `triton/steps.py` have them on single numbers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from widenet.devices import sent
from widenet.kernels.bags import RowGradient, copied
from widenet.kernels.fixed_point import powers
from widenet.kernels.native import Packed, call, check_dtypes, library_runs, packed, triton_runs
from widenet.plan.tiles import blocks
from widenet.spec.optimizers import Adadelta, Adagrad, Momentum, OfMoments, Optimizer, Rmsprop

Constants = tuple[float, ...]

KINDS = {
    "sgd": 0,
    "momentum": 1,
    "nesterov": 1,
    "adagrad": 2,
    "rmsprop": 2,
    "adadelta": 3,
    "adam": 4,
    "adamw": 4,
}
"""The optimizers that the library and Triton have, with the library's number of each."""
_NUM_CONSTANTS = 6
"""The most constants of an optimizer, which the library and Triton read of each."""
_AT_ONCE = 16
"""Weights whose steps Triton makes in one launch, at most; each has a copy of the kernel's code."""
_LARGEST = torch.finfo(torch.float32).max


def constants(spec: Optimizer, rate: float, number: int) -> Constants:
    """Return the constants of step `number`, from 1, at a learning rate: `c` of the kind's formula."""
    match spec:
        case Momentum():
            return spec.momentum, spec.momentum if spec.kind == "nesterov" else 0.0, rate
        case Adagrad() | Rmsprop() | Adadelta():
            keep, share = (1.0, 1.0) if isinstance(spec, Adagrad) else (spec.decay, 1 - spec.decay)
            return keep, share, spec.epsilon if spec.floor is None else 0.0, rate, spec.floor or 0.0
        case OfMoments(beta1=beta1, beta2=beta2):
            times = number + getattr(spec, "step_offset", 0)
            length = min(rate / (1 - beta1**times), _LARGEST)
            return 1 - beta1, beta2, 1 - beta2, length, 1 / math.sqrt(1 - beta2**times), spec.epsilon
    return (rate,)


def _sgd(w: Tensor, g: Tensor, c: Constants) -> None:
    w.add_(g, alpha=-c[0])


def _momentum(w: Tensor, g: Tensor, c: Constants, velocity: Tensor) -> None:
    """Steps along a fading sum of gradients, or for c[1] > 0 Nesterov's with its look ahead.

    The latter is in torch's form (Sutskever et al., ICML 2013, section 2.1).
    """
    velocity.mul_(c[0]).add_(g)
    w.add_(g.add_(velocity, alpha=c[1]) if c[1] else velocity, alpha=-c[2])


def _squares(w: Tensor, g: Tensor, c: Constants, square: Tensor) -> None:
    """AdaGrad, which adds up squares, also one number for each row; and RMSProp, whose squares fade."""
    if square.shape == w.shape:
        square.mul_(c[0]).addcmul_(g, g, value=c[1])
    else:
        square.add_(row_means(g.square()))
    w.addcdiv_(g, square.clamp_min(c[4]).sqrt().add_(c[2]), value=-c[3])


def _adadelta(w: Tensor, g: Tensor, c: Constants, square: Tensor, step_square: Tensor) -> None:
    square.mul_(c[0]).addcmul_(g, g, value=c[1])
    step_root, root = (mean.clamp_min(c[4]).add_(c[2]).sqrt_() for mean in (step_square, square))
    change = step_root.div_(root).mul_(g)
    step_square.mul_(c[0]).addcmul_(change, change, value=c[1])
    w.add_(change, alpha=-c[3])


def _adam(w: Tensor, g: Tensor, c: Constants, mean: Tensor, square: Tensor) -> None:
    """Adam and AdamW, whose decay is `OptimizerStep.keep`."""
    mean.lerp_(g, c[0])
    square.mul_(c[1]).addcmul_(g, g, value=c[2])
    w.addcdiv_(mean, square.sqrt().mul_(c[4]).add_(c[5]), value=-c[3])


FORMULAS: dict[str, Callable[..., None]] = {
    "sgd": _sgd,
    "momentum": _momentum,
    "nesterov": _momentum,
    "adagrad": _squares,
    "rmsprop": _squares,
    "adadelta": _adadelta,
    "adam": _adam,
    "adamw": _adam,
}
"""The step of each kind in place, from weight, gradient, constants and states; may overwrite the gradient."""


def row_means(numbers_RH: Tensor) -> Tensor:
    """Return the mean of every row, [R, 1], of numbers added in one order, that of the library's `dot`.

    Each of 16 lanes adds every 16th number. Then the lanes are folded in half until one is left. Rows of
    several shards may come along a first dimension.
    """
    total = numbers_RH.new_zeros(*numbers_RH.shape[:-1], 16)
    for lanes in torch.split(numbers_RH, 16, dim=-1):
        total[..., : lanes.shape[-1]] += lanes
    while (half := total.shape[-1] // 2) > 0:
        total = total[..., :half] + total[..., half:]
    return total / numbers_RH.shape[-1]


def multiply_rows(rows: Tensor, factor_U: Tensor) -> None:
    """Multiply every row by a number of its own, in place."""
    rows.mul_(sent(factor_U.float(), rows.device)[:, None])


@dataclass(frozen=True)
class Idle:
    """Steps without a gradient that the states of touched rows have missed.

    Attributes:
        since: The last step of each row, int32 [R].
        number: The step that touches them.
        fading: Share of the states that stays in a step without a gradient.
    """

    since: Tensor
    number: int
    fading: float

    def factors(self, rows_U: Tensor) -> Tensor:
        """Return the factors on the states of some rows, float32 [U]."""
        return powers(self.fading, self.number - 1 - self.since.index_select(0, rows_U).double()).float()


@dataclass(frozen=True)
class OptimizerStep:
    """A step: g = scale * g + l2 * w + l1 * sign(w), then w = keep * w, then the formula.

    Attributes:
        kind: The kind of optimizer.
        constants: See `constants`.
        scale: Factor on the gradient.
        l2: Strength of the l2 penalty.
        l1: Strength of the l1 penalty.
        keep: Share of the weight that stays.
    """

    kind: str
    constants: Constants
    scale: float = 1.0
    l2: float = 0.0
    l1: float = 0.0
    keep: float = 1.0

    def runner(self, weight: Tensor, states: Mapping[str, Tensor]) -> Literal["triton", "native", "torch"]:
        """Return what makes the step of a weight: Triton only with states of the weight's shape."""
        if weight.dtype != torch.float32 or self.kind not in KINDS:
            return "torch"
        if triton_runs(weight.device):
            return "triton" if all(state.shape == weight.shape for state in states.values()) else "torch"
        return "native" if library_runs(weight.device) else "torch"

    def tile(
        self,
        weight: Tensor,
        gradient: Tensor,
        states: Mapping[str, Tensor],
        sums: Tensor | None = None,
    ) -> None:
        """Make the step of a contiguous weight, in place; may overwrite the gradient.

        Args:
            weight: The weight, or some rows of it, or of several shards [S, R, H].
            gradient: Of its shape; with `sums` it has more columns.
            states: The optimizer's states of its shape. A single one may be [R, 1].
            sums: Receives the gradient's first column after those of the weight, [S, R].
        """
        runner = self.runner(weight, states)
        if sums is not None and runner != "triton":
            sums.copy_(gradient[..., weight.shape[-1]])
            gradient = gradient[..., : weight.shape[-1]]
        match runner:
            case "native":
                check_dtypes(float32=[gradient])
                call("step_tile", self.packed(weight, states), weight.numel(), gradient.contiguous())
            case "triton":
                from widenet.kernels.triton.steps import step_tile

                step_tile(self.kind, self.numbers, weight, gradient, [*states.values()], sums)
            case _:
                self._make(weight, gradient, states)

    def rows(
        self,
        weight_RH: Tensor,
        touched: RowGradient,
        states: Mapping[str, Tensor],
        idle: Idle | None = None,
    ) -> None:
        """Make the step of the touched rows of a weight, in place.

        Args:
            weight_RH: The weight.
            touched: The rows and their gradient; the order of addition is by example, then storage order.
            states: The optimizer's states [R, H]. A single one may be [R, 1].
            idle: What the states have missed, which is made up for before the step.
        """
        runner = self.runner(weight_RH, states)
        fade_U = None if idle is None or runner == "triton" else idle.factors(touched.features_U)
        match runner:
            case "native":
                check_dtypes(float32=[fade_U])
                step, columns = self.packed(weight_RH, states), weight_RH.shape[1]
                call("step_rows", step, columns, packed_rows(touched), fade_U)
            case "triton":
                from widenet.kernels.triton.steps import step_rows

                missed = (None, 0, 1.0) if idle is None else (idle.since, idle.number, idle.fading)
                step_rows(self.kind, self.numbers, weight_RH, touched, [*states.values()], *missed)
            case _:
                for start, stop in blocks(len(touched), weight_RH.shape[1], weight_RH.device.type):
                    with copied(weight_RH, states, touched.features_U[start:stop]) as (own, own_states):
                        for state in own_states.values():
                            if fade_U is not None:
                                multiply_rows(state, fade_U[start:stop])
                        self._make(own, touched.rows(start, stop), own_states)

    def packed(self, weight: Tensor, states: Mapping[str, Tensor]) -> Packed:
        """Return the library's structure of the step of a weight."""
        check_dtypes(float32=(weight, *states.values()))
        first, second = [*states.values(), None, None][:2]
        per = 1 if first is None else weight.numel() // max(first.numel(), 1)
        penalties, filled = (_float32(*numbers) for numbers in self.numbers)
        return packed(weight, first, second, KINDS[self.kind], penalties, filled, max(per, 1))

    @property
    def numbers(self) -> tuple[Constants, Constants]:
        """The four numbers around the formula, and all constants that the library and Triton read."""
        missing = _NUM_CONSTANTS - len(self.constants)
        penalties = float(self.scale), float(self.l2), float(self.l1), float(self.keep)
        return penalties, (*self.constants, *[0.0] * missing)

    def _make(self, weight: Tensor, gradient: Tensor, states: Mapping[str, Tensor]) -> None:
        """Make the step by torch."""
        if self.scale != 1.0:
            gradient.mul_(self.scale)
        if self.l2:
            gradient.add_(weight, alpha=self.l2)
        if self.l1:
            gradient.add_(torch.sign(weight), alpha=self.l1)
        if self.keep != 1.0:
            weight.mul_(self.keep)
        FORMULAS[self.kind](weight, gradient, self.constants, *states.values())


def make_all(steps: Sequence[tuple[OptimizerStep, Tensor, Tensor, Mapping[str, Tensor]]]) -> None:
    """Make steps of one optimizer from weights, gradients and states; see `OptimizerStep.tile`.

    Triton makes some in one launch.
    """
    if {step.runner(weight, states) for step, weight, _, states in steps} == {"triton"}:
        from widenet.kernels.triton.steps import step_all

        for first in range(0, len(steps), _AT_ONCE):
            made, weights, gradients, states = zip(*steps[first : first + _AT_ONCE], strict=True)
            own = [[*each.values()] for each in states]
            step_all(made[0].kind, [step.numbers for step in made], weights, gradients, own)
        return
    for step, weight, gradient, own_states in steps:
        step.tile(weight, gradient, own_states)


def packed_rows(touched: RowGradient) -> Packed:
    """Return the library's structure of touched rows and their gradient."""
    rows_U, indptr, examples_Z = (
        tensor.long().contiguous() for tensor in (touched.features_U, touched.indptr, touched.examples_Z)
    )
    check_dtypes(float32=(touched.values_Z, touched.gradient_EH))
    vectors = touched.values_Z, touched.gradient_EH.contiguous()
    return packed(rows_U, len(rows_U), indptr, examples_Z, *vectors)


@lru_cache(maxsize=64)
def _float32(*numbers: float) -> Tensor:
    """Return numbers as a float32 tensor; cached, since all tiles of a step need the same."""
    return torch.tensor(numbers, dtype=torch.float32)
