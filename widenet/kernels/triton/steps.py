"""Optimizer steps on CUDA, the counterpart of `kernels.compiled_steps.CompiledSteps` on a CPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.compiled_steps import Penalties
from widenet.kernels.triton.row_step import row_step
from widenet.kernels.triton.tile_step import tile_step


@dataclass(frozen=True)
class Steps:
    """The steps of one optimizer.

    Attributes:
        kind: Its kind.
        penalties: Its penalties; `keep` comes from `numbers` instead.
        numbers: A row of `training.optimizers.Optimizer.table`, float64 [8], in the device's memory.
    """

    kind: str
    penalties: Penalties
    numbers: Tensor

    def tile(self, weight: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> None:
        """See `CompiledSteps.tile`."""
        tile_step(self.kind, weight, gradient, states, self.penalties, self.numbers)

    def rows(
        self,
        weight_RH: Tensor,
        touched: RowGradient,
        states: Sequence[Tensor],
        fade_U: Tensor,
        moved: Tensor | None = None,
    ) -> None:
        """See `CompiledSteps.rows`; skips rows -1, and notes the step's number in `moved`, int32 [R]."""
        row_step(self.kind, weight_RH, touched, states, fade_U, moved, self.penalties, self.numbers)
