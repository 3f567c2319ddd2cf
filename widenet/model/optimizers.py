"""Optimizers: the rule that adds penalties and idle rows to every kind's formula."""

from dataclasses import dataclass
from threading import Lock

import numpy as np
import torch
from torch import Tensor

from widenet.devices import sent
from widenet.kernels.bags import RowGradient
from widenet.kernels.fixed_point import powers
from widenet.kernels.native import library_runs, triton_runs
from widenet.kernels.steps import Idle, OptimizerStep, constants, multiply_rows
from widenet.model.storage import Scratch, Store, zeros
from widenet.spec.optimizers import Optimizer as OptimizerSpec


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
    return library_runs(torch.device(device)) or triton_runs(torch.device(device))


class Optimizer:
    """The rule of a training: a formula, and the document's penalties around it.

    Attributes:
        spec: The optimizer in the document.
        state: Names of its state tensors.
        fading: Share of the state that stays in a step without a gradient.
        idles: Whether a weight or its state changes without a gradient; `idle` applies many such steps.
        idle_weights_move: Whether `idle` changes weights too, so that rows must catch up before they are
            read.
    """

    def __init__(self, spec: OptimizerSpec, l1: float = 0.0, l2: float = 0.0) -> None:
        self.spec, self.state, self.l1, self.l2 = spec, spec.state, l1, l2
        self.fading: float = getattr(spec, "momentum", getattr(spec, "decay", 1.0))
        self._shrinks = spec.kind == "sgd" and l2 > 0
        self.idles = spec.idles or self._shrinks
        self.idle_weights_move = spec.idle_weights_move or self._shrinks
        self._lock, self._rates, self._path = Lock(), np.zeros(0), torch.zeros(0)

    def state_for(
        self, weight: Tensor, store: Store | None = None, has_vectors: bool = False
    ) -> dict[str, Tensor]:
        """Return the state of a weight before its first step, zeros by name.

        They have the weight's shape. Under "per_row", a weight whose rows are vectors has a number for each
        row, in memory if the weight lies in a file.
        """
        shape: tuple[int, ...] = weight.shape
        if has_vectors and getattr(self.spec, "per_row", False):
            shape, store = (*shape[:1], 1), None if isinstance(store, Scratch) else store
        return {name: zeros(shape, weight.device, store, weight.dtype) for name in self.state}

    def made(self, step: StepNumbers, is_bias: bool = False) -> OptimizerStep:
        """Return the step of a weight, or of biases, on which there are no penalties."""
        kind, own = self.spec.kind, constants(self.spec, step.rate, step.number)
        if is_bias:
            return OptimizerStep(kind, own, step.gradient_scale)
        keep = 1 - step.rate * getattr(self.spec, "weight_decay", 0.0)
        return OptimizerStep(kind, own, step.gradient_scale, self.l2, self.l1, keep)

    def apply_to_rows(
        self,
        weight: Tensor,
        touched: RowGradient,
        state: dict[str, Tensor],
        since: Tensor | None,
        step: StepNumbers,
        is_bias: bool = False,
    ) -> None:
        """Make a step of some rows of a weight [R, H], or of some biases [R, 1].

        Args:
            weight: The weight or biases.
            touched: The rows and their gradient.
            state: State of the weight.
            since: Last step of each row, int32 [R], updated in place; the state catches up from there.
            step: Numbers of the step.
            is_bias: Whether these are biases.
        """
        idle = None
        if since is not None and not self.idle_weights_move:
            idle = Idle(since, step.number, self.fading)
        self.made(step, is_bias).rows(weight, touched, state, idle)
        if since is not None:
            since.index_fill_(0, touched.features_U, step.number)

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

        Penalties other than l2 under sgd wait until a row is touched; so do all of biases. Under momentum,
        w -= v * sum of rate * momentum^j (Nesterov multiplies by momentum once more); v *= momentum^skipped.
        Under others the weights stand still, and the states fade.

        Args:
            weight: The rows.
            state: Their state.
            since: Last step of each row, int32 [U].
            until: Last step to apply.
            rates: Learning rates of all steps, float64 [steps + 1].
            is_bias: Whether the rows are biases.
        """
        since_U = since.cpu().long()
        fade_U = powers(self.fading, (until - since_U).double())
        if self._shrinks and not is_bias:
            path = self._path_of(rates)
            multiply_rows(weight, (path[until] - path[since_U]).exp())
        elif "velocity" in self.state:
            path = self._path_of(rates)
            distance_U = path[since_U] - fade_U * path[until]
            if self.spec.kind == "nesterov":
                distance_U *= self.fading
            weight.addcmul_(state["velocity"], sent(distance_U.float(), weight.device)[:, None], value=-1)
        for tensor in state.values():
            multiply_rows(tensor, fade_U)

    def _path_of(self, rates: np.ndarray) -> Tensor:
        """Return what idle steps need of all steps, float64 [steps + 1]; computed once, and threads share it.

        Under sgd, the logarithms of the factors by which l2 shrinks a weight up to each step. Under momentum,
        how far a velocity moves a weight in all later steps, the sum of rate[n + j] * momentum^j over j > 0.
        The part of that up to step m is path[n] - momentum^(m - n) * path[m].
        """
        with self._lock:
            if self._rates is not rates:
                path, total = np.zeros(len(rates)), 0.0
                if self._shrinks:
                    path[1:] = np.cumsum(torch.from_numpy(-rates[1:] * self.l2).log1p().numpy())
                for step in range(len(rates) - 1, 0, -1) if not self._shrinks else ():
                    total = self.fading * (float(rates[step]) + total)
                    path[step - 1] = total
                self._rates, self._path = rates, torch.from_numpy(path)
            return self._path
