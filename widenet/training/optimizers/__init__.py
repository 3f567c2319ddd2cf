"""Optimizers: one file each, named for the kind in the training document; penalties and rows that idle are the same for all."""

from importlib import import_module
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from widenet.model.rule import StepNumbers
from widenet.spec.optimizers import Optimizer as OptimizerSpec


class Formula(Protocol):
    """An optimizer's arithmetic, elementwise and in place."""

    def step(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], rate: float, number: int) -> None:
        """One step. May overwrite the gradient."""


class Idling(Formula, Protocol):
    """The arithmetic of an optimizer under which rows without a gradient move too: their state, and their weights where it says so."""

    moves_weights: bool

    def idle(self, weight: Tensor, state: dict[str, Tensor], since_U: np.ndarray, until: int, rates: np.ndarray) -> None:
        """The steps since_U + 1 to `until` of rows [U, H] whose gradient is zero."""


class Optimizer:
    """The rule of a training: a formula, and the document's penalties around it."""

    def __init__(self, spec: OptimizerSpec, l1: float = 0.0, l2: float = 0.0) -> None:
        module = import_module(f"{__name__}.{spec.kind}")
        formula = module.formula(spec)
        self.formula: Formula = formula
        self.idling: Idling | None = formula if spec.idles else None
        self.state = spec.state
        self.l1, self.l2 = l1, l2
        self.decay = getattr(spec, "weight_decay", 0.0)
        self._shrinks = spec.kind == "sgd" and l2 > 0
        self._shrunk: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def idles(self) -> bool:
        """Whether rows without a gradient still move; see `model.rule.Rule`."""
        return self.idling is not None or self._shrinks

    @property
    def idle_weights_move(self) -> bool:
        """Whether that moves the weights too; see `model.rule.Rule`."""
        return self._shrinks or (self.idling is not None and self.idling.moves_weights)

    def state_for(self, weight: Tensor) -> dict[str, Tensor]:
        """Zeros for every state tensor."""
        return {name: torch.zeros_like(weight) for name in self.state}

    def apply(self, weight: Tensor, gradient: Tensor, state: dict[str, Tensor], step: StepNumbers) -> None:
        """One step of a weight."""
        self._scale(gradient, step)
        if self.l2:
            gradient.add_(weight, alpha=self.l2)
        if self.l1:
            gradient.add_(torch.sign(weight), alpha=self.l1)
        if self.decay:
            weight.mul_(1 - step.rate * self.decay)
        self.formula.step(weight, gradient, state, step.rate, step.number)

    def apply_to_bias(self, bias: Tensor, gradient: Tensor, state: dict[str, Tensor], step: StepNumbers, l2: float = 0.0) -> None:
        """One step of a bias."""
        self._scale(gradient, step)
        if l2:
            gradient.add_(bias, alpha=l2)
        self.formula.step(bias, gradient, state, step.rate, step.number)

    def idle(self, weight: Tensor, state: dict[str, Tensor], since: Tensor, until: int, rates: np.ndarray) -> None:
        """Steps of rows without a gradient. Penalties other than l2 under sgd wait until a row is touched."""
        since_U = since.cpu().numpy().astype(np.int64)
        if self._shrinks:
            shrunk = self._log_shrinkage(rates)
            multiply_rows(weight, np.exp(shrunk[until] - shrunk[since_U]))
        if self.idling is not None:
            self.idling.idle(weight, state, since_U, until, rates)

    def _log_shrinkage(self, rates: np.ndarray) -> np.ndarray:
        """The logarithm of what is left of a weight after n steps of l2 alone, float64 [steps + 1]."""
        if self._shrunk is None or self._shrunk[0] is not rates:
            steps = np.log1p(-rates * self.l2)
            steps[0] = 0.0
            self._shrunk = rates, np.cumsum(steps)
        return self._shrunk[1]

    def _scale(self, gradient: Tensor, step: StepNumbers) -> None:
        if step.gradient_scale != 1.0:
            gradient.mul_(step.gradient_scale)


def multiply_rows(rows: Tensor, factor_U: np.ndarray) -> None:
    """Multiply every row by a number of its own, in place."""
    rows.mul_(torch.from_numpy(factor_U.astype(np.float32)).to(rows.device)[:, None])
