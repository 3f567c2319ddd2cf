"""Optimizers: the formula of each kind, and the rule that adds penalties and idle rows to all of them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from widenet.devices import sent
from widenet.kernels.bags import RowGradient
from widenet.kernels.native import runner, step_runner
from widenet.kernels.passes import Penalties, TileStep
from widenet.kernels.powers import powers
from widenet.kernels.rows import copied
from widenet.model.storage import Scratch, Store, zeros_for
from widenet.plan.tiles import blocks
from widenet.spec.optimizers import Adadelta, Adagrad, Momentum, OfMoments, Rmsprop, Sgd
from widenet.spec.optimizers import Optimizer as OptimizerSpec

if TYPE_CHECKING:
    from widenet.kernels.triton.steps import Steps


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of one optimizer step.

    Attributes:
        number: Number of the step in the whole training, from 1.
        rates: Learning rate of every step, float64 [steps + 1]; rates[0] is unused.
        gradient_scale: Factor on every gradient, to keep a norm limit.
    """

    number: int
    rates: np.ndarray
    gradient_scale: float = 1.0

    @property
    def rate(self) -> float:
        """This step's learning rate."""
        return float(self.rates[self.number])


def is_compiled(device: str) -> bool:
    """Whether the steps on a kind of device are the library's or Triton's; torch rounds elsewhere."""
    return runner("row_update", torch.device(device)) != "torch"


class Formula(Protocol):
    """An optimizer's arithmetic on tensors, in place; `native/steps.cpp` has that on single numbers."""

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        """Return the constants of the step on single numbers in step `number`."""

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        """One step. May overwrite the gradient."""


class Idling(Formula, Protocol):
    """The arithmetic of an optimizer that also moves rows without a gradient.

    Their state moves, and their weights if the optimizer's spec says so.
    """

    def idle(
        self, weight: Tensor, state: dict[str, Tensor], since_U: Tensor, until: int, rates: np.ndarray
    ) -> None:
        """The steps since_U + 1, int64 on the host, to `until` of rows [U, H] whose gradient is zero."""

    def fade(self, steps_U: Tensor) -> Tensor:
        """Return the factors, float64 [U], by which idle steps multiply the state.

        Args:
            steps_U: Number of idle steps of each row, float64 [U].
        """


_LARGEST = torch.finfo(torch.float32).max


def guards(spec: Adagrad | Rmsprop | Adadelta) -> tuple[float, float]:
    """Return the epsilon and the floor that keep a division by a root finite; one of them is 0."""
    return (spec.epsilon, 0.0) if spec.floor is None else (0.0, spec.floor)


def held(squares: Tensor, floor: float) -> Tensor:
    """Squares, none below the floor."""
    return squares.clamp_min(floor) if floor else squares


def row_means(numbers_RH: Tensor) -> Tensor:
    """Return the mean of every row, [R, 1], of numbers added in one order, that of the library's `dot`.

    Each of 16 lanes adds every 16th number. Then the lanes are folded in half until one is left.
    """
    columns = numbers_RH.shape[1]
    total = numbers_RH.new_zeros(len(numbers_RH), 16)
    for lanes in torch.split(numbers_RH, 16, dim=1):
        total[:, : lanes.shape[1]] += lanes
    while (half := total.shape[1] // 2) > 0:
        total = total[:, :half] + total[:, half:]
    return total / columns


def multiply_rows(rows: Tensor, factor_U: Tensor) -> None:
    """Multiply every row by a number of its own, in place."""
    rows.mul_(sent(factor_U.float(), rows.device)[:, None])


class StepTable:
    """Numbers of all steps, computed once from their learning rates; threads may share it."""

    def __init__(self, compute: Callable[[np.ndarray], np.ndarray]) -> None:
        self._compute, self._lock = compute, Lock()
        self._rates: np.ndarray | None = None
        self._table = np.zeros(0)

    def of(self, rates: np.ndarray) -> np.ndarray:
        """Return the numbers of the steps with these rates; both are float64 [steps + 1]."""
        with self._lock:
            if self._rates is not rates:
                self._rates, self._table = rates, self._compute(rates)
            return self._table


def path_sums(momentum: float) -> StepTable:
    """Return how far a velocity moves a weight in all later steps without a gradient.

    For step n, it is the sum of rate[n + j] * momentum^j over j > 0. The part of the sum up to step m is
    table[n] - momentum^(m - n) * table[m].
    """

    def compute(rates: np.ndarray) -> np.ndarray:
        ahead, total = np.zeros(len(rates)), 0.0
        for step in range(len(rates) - 1, 0, -1):
            total = momentum * (float(rates[step]) + total)
            ahead[step - 1] = total
        return ahead

    return StepTable(compute)


def shrinkage(l2: float) -> StepTable:
    """Return the logarithms of the factors by which the l2 penalty alone shrinks a weight up to each step."""

    def compute(rates: np.ndarray) -> np.ndarray:
        logs = np.zeros(len(rates))
        logs[1:] = np.cumsum(torch.from_numpy(-rates[1:] * l2).log1p().numpy())
        return logs

    return StepTable(compute)


class _Sgd:
    """Stochastic gradient descent."""

    def __init__(self, spec: Sgd) -> None:
        """Take nothing from the settings."""

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        return (rate,)

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        weight.add_(gradient, alpha=-rate)


class _Velocity:
    """Momentum: steps along a fading sum of gradients; and Nesterov's with its look ahead.

    The latter is in torch's form (Sutskever et al., ICML 2013, section 2.1).
    """

    def __init__(self, spec: Momentum) -> None:
        self.momentum, self.looks_ahead = spec.momentum, spec.kind == "nesterov"
        self._path_sums = path_sums(self.momentum)

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        """See `Formula.constants`."""
        return self.momentum, self.momentum if self.looks_ahead else 0.0, rate

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        """One step."""
        velocity = state["velocity"].mul_(self.momentum).add_(gradient)
        direction = gradient.add_(velocity, alpha=self.momentum) if self.looks_ahead else velocity
        weight.add_(direction, alpha=-rate)

    def idle(
        self, weight: Tensor, state: dict[str, Tensor], since_U: Tensor, until: int, rates: np.ndarray
    ) -> None:
        """Apply the skipped steps, in which only the velocity moves the weights.

        w -= v * sum of rate * momentum^j (Nesterov multiplies by momentum once more);
        v *= momentum^skipped.
        """
        ahead = torch.from_numpy(self._path_sums.of(rates))
        fade_U = self.fade((until - since_U).double())
        distance_U = ahead[since_U] - fade_U * ahead[until]
        if self.looks_ahead:
            distance_U *= self.momentum
        factor_U1 = sent(distance_U.float(), weight.device)[:, None]
        weight.addcmul_(state["velocity"], factor_U1, value=-1)
        multiply_rows(state["velocity"], fade_U)

    def fade(self, steps_U: Tensor) -> Tensor:
        """See `Idling.fade`."""
        return powers(self.momentum, steps_U)


class _Adagrad:
    """Adagrad."""

    def __init__(self, spec: Adagrad) -> None:
        self.epsilon, self.floor = guards(spec)

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        return 1.0, 1.0, self.epsilon, rate, self.floor

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        total = state["square_sum"]
        if total.shape == weight.shape:
            total.addcmul_(gradient, gradient)
        else:
            total.add_(row_means(gradient.square()))
        weight.addcdiv_(gradient, held(total, self.floor).sqrt().add_(self.epsilon), value=-rate)


class _MeanSquares:
    """What RMSProp and Adadelta share: a row without a gradient stands still, and its mean squares fade."""

    def __init__(self, spec: Rmsprop | Adadelta) -> None:
        self.spec = spec
        self.epsilon, self.floor = guards(spec)

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        return self.spec.decay, 1 - self.spec.decay, self.epsilon, rate, self.floor

    def idle(
        self, weight: Tensor, state: dict[str, Tensor], since_U: Tensor, until: int, rates: np.ndarray
    ) -> None:
        fade_U = self.fade((until - since_U).double())
        for mean in state.values():
            multiply_rows(mean, fade_U)

    def fade(self, steps_U: Tensor) -> Tensor:
        """See `Idling.fade`."""
        return powers(self.spec.decay, steps_U)


class _Rmsprop(_MeanSquares):
    """RMSProp."""

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        decay = self.spec.decay
        square = state["square"].mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
        weight.addcdiv_(gradient, held(square, self.floor).sqrt().add_(self.epsilon), value=-rate)


class _Adadelta(_MeanSquares):
    """Adadelta."""

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        decay, epsilon = self.spec.decay, self.epsilon
        square = state["square"].mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
        step_root, root = (
            (held(mean, self.floor) + epsilon).sqrt_() for mean in (state["step_square"], square)
        )
        change = step_root.div_(root).mul_(gradient)
        state["step_square"].mul_(decay).addcmul_(change, change, value=1 - decay)
        weight.add_(change, alpha=-rate)


class _Adam:
    """Adam's step; `step_offset` is added to its number in the correction for the moments' start.

    It is lazy on rows: one without a gradient keeps its weight and its moments until it has one. AdamW's
    decay is applied with the other penalties, to weights and not to biases.
    """

    def __init__(self, spec: OfMoments) -> None:
        self.spec, self.step_offset = spec, getattr(spec, "step_offset", 0)

    def constants(self, rate: float, number: int) -> tuple[float, ...]:
        """See `Formula.constants`."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        return 1 - beta1, beta2, 1 - beta2, *self._corrected(rate, number), self.spec.epsilon

    def step(
        self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int
    ) -> None:
        """One step."""
        beta1, beta2 = self.spec.beta1, self.spec.beta2
        mean = state["mean"].lerp_(gradient, 1 - beta1)
        square = state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        length, factor = self._corrected(rate, number)
        weight.addcdiv_(mean, square.sqrt().mul_(factor).add_(self.spec.epsilon), value=-length)

    def _corrected(self, rate: float, number: int) -> tuple[float, float]:
        """Return the rate and the factor of the square root after the bias correction of the moments."""
        times = number + self.step_offset
        return min(rate / (1 - self.spec.beta1**times), _LARGEST), 1 / math.sqrt(1 - self.spec.beta2**times)


_FORMULAS: dict[str, Callable[[Any], Formula]] = {
    "sgd": _Sgd,
    "momentum": _Velocity,
    "nesterov": _Velocity,
    "adagrad": _Adagrad,
    "rmsprop": _Rmsprop,
    "adadelta": _Adadelta,
    "adam": _Adam,
    "adamw": _Adam,
}


class Optimizer:
    """The rule of a training: a formula, and the document's penalties around it.

    Attributes:
        idles: Whether a weight or its state changes without a gradient; `idle` applies many such steps.
        idle_weights_move: Whether `idle` changes weights too, so that rows must catch up before they are
            read.
    """

    def __init__(self, spec: OptimizerSpec, l1: float = 0.0, l2: float = 0.0) -> None:
        formula: Any = _FORMULAS[spec.kind](spec)
        self.kind, self.per_row = spec.kind, getattr(spec, "per_row", False)
        self.formula: Formula = formula
        self.idling: Idling | None = formula if spec.idles else None
        self.state = spec.state
        self.l1, self.l2 = l1, l2
        self.decay = getattr(spec, "weight_decay", 0.0)
        self._shrinks = spec.kind == "sgd" and l2 > 0
        self._shrinkage = shrinkage(l2)
        self.idles = self.idling is not None or self._shrinks
        self.idle_weights_move = self._shrinks or spec.idle_weights_move

    def state_for(
        self, weight: Tensor, store: Store | None = None, has_vectors: bool = False
    ) -> dict[str, Tensor]:
        """Return the state of a weight before its first step, zeros by name.

        They have the weight's shape. Under "per_row", a weight whose rows are vectors has a number for each
        row, in memory if the weight lies in a file.
        """
        if self.per_row and has_vectors:
            weight, store = weight[:, :1], None if isinstance(store, Scratch) else store
        return {name: zeros_for(weight, store) for name in self.state}

    def library_step(
        self, weight: Tensor, step: StepNumbers, bias_l2: float | None = None
    ) -> TileStep | None:
        """Return the same step for the native library to make; None if it does not."""
        fused = self._fused_for(weight, (), step, bias_l2) if weight.is_contiguous() else None
        return fused if isinstance(fused, TileStep) else None

    def apply_to_rows(
        self,
        weight: Tensor,
        touched: RowGradient,
        state: dict[str, Tensor],
        since: Tensor | None,
        step: StepNumbers,
        bias_l2: float | None = None,
    ) -> None:
        """Make a step of some rows of a weight [R, H], or of some biases [R, 1].

        Args:
            weight: The weight or biases.
            touched: The rows and their gradient.
            state: State of the weight.
            since: Last step of each row, int32 [R], updated in place; the state catches up from there.
            step: Numbers of the step.
            bias_l2: For biases, their own l2; None for a weight.
        """
        idled = None if self.idle_weights_move else since
        fused = self._fused_for(weight, [*state.values()], step, bias_l2)
        if fused is None:
            self._apply_to_blocks(weight, touched, state, idled, step, bias_l2)
        else:
            fused.rows(weight, touched, [*state.values()], self._fade(touched, idled, step.number - 1))
        if since is not None:
            since.index_fill_(0, touched.features_U, step.number)

    def _apply_to_blocks(
        self,
        weight: Tensor,
        touched: RowGradient,
        state: dict[str, Tensor],
        idled: Tensor | None,
        step: StepNumbers,
        bias_l2: float | None,
    ) -> None:
        for start, stop in blocks(len(touched), weight.shape[1], weight.device.type):
            rows_U = touched.features_U[start:stop]
            with copied(weight, state, rows_U) as (own, own_state):
                if idled is not None:
                    self.idle(own, own_state, idled.index_select(0, rows_U), step.number - 1, step.rates)
                self.apply(own, touched.rows(start, stop), own_state, step, bias_l2)

    def _fade(self, touched: RowGradient, idled: Tensor | None, until: int) -> Tensor:
        """Return the factors by which idle steps have shrunk the states of touched rows, float32 [U]."""
        if idled is None or self.idling is None:
            return torch.ones(len(touched), device=touched.features_U.device)
        return self.idling.fade(until - idled.index_select(0, touched.features_U).double()).float()

    def _fused_for(
        self, weight: Tensor, states: Sequence[Tensor], step: StepNumbers, bias_l2: float | None
    ) -> "TileStep | Steps | None":
        """The step in one pass, by the native library or Triton, where the weight is one that they take.

        Triton takes states of the weight's shape alone.
        """
        maker = step_runner(weight.device, self.kind)
        has_rows = maker == "triton" and any(state.shape != weight.shape for state in states)
        if weight.dtype != torch.float32 or maker == "torch" or has_rows:
            return None
        penalties, constants = (
            self._penalties(step, bias_l2),
            self.formula.constants(step.rate, step.number),
        )
        if maker == "native":
            return TileStep.of(self.kind, penalties, constants)
        from widenet.kernels.triton.steps import Steps

        return Steps(self.kind, penalties, constants)

    def _penalties(self, step: StepNumbers, bias_l2: float | None) -> Penalties:
        """Return the penalties of a weight, or of a bias with its own l2."""
        if bias_l2 is not None:
            return Penalties(step.gradient_scale, bias_l2)
        return Penalties(step.gradient_scale, self.l2, self.l1, 1 - step.rate * self.decay)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        state: dict[str, Tensor],
        step: StepNumbers,
        bias_l2: float | None = None,
    ) -> None:
        """Make a step in place, including penalties; may overwrite the gradient.

        `bias_l2` is the only penalty on a bias, None for a weight.
        """
        fused = self._fused_for(weight, [*state.values()], step, bias_l2)
        if fused is not None:
            fused.tile(weight, gradient, [*state.values()])
            return
        penalties = self._penalties(step, bias_l2)
        if penalties.scale != 1.0:
            gradient.mul_(penalties.scale)
        if penalties.l2:
            gradient.add_(weight, alpha=penalties.l2)
        if penalties.l1:
            gradient.add_(torch.sign(weight), alpha=penalties.l1)
        if penalties.keep != 1.0:
            weight.mul_(penalties.keep)
        self.formula.step(weight, gradient, state, step.rate, step.number)

    def idle(
        self,
        weight: Tensor,
        state: dict[str, Tensor],
        since: Tensor,
        until: int,
        rates: np.ndarray,
        is_bias: bool = False,
    ) -> None:
        """Apply steps with zero gradients to rows [U, H], in place.

        Penalties other than l2 under sgd wait until a row is touched; so do all of biases.

        Args:
            weight: The rows.
            state: Their state.
            since: Last step of each row, int32 [U].
            until: Last step to apply.
            rates: Learning rates of all steps, float64 [steps + 1].
            is_bias: Whether the rows are biases.
        """
        since_U = since.cpu().long()
        if self._shrinks and not is_bias:
            shrunk = torch.from_numpy(self._shrinkage.of(rates))
            multiply_rows(weight, (shrunk[until] - shrunk[since_U]).exp())
        if self.idling is not None:
            self.idling.idle(weight, state, since_U, until, rates)
