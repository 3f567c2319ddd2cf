"""An optimizer's steps on CUDA, as `kernels.compiled_steps.CompiledSteps` has them on a CPU; their numbers
lie in the device's memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.compiled_steps import Penalties
from widenet.kernels.triton.row_step import row_step
from widenet.kernels.triton.tile_step import tile_step


@dataclass(frozen=True)
class Steps:
    """The steps of an optimizer of this kind.

    penalties: `keep` is not theirs to say. numbers: float64 [8], a row of
    `training.optimizers.Optimizer.table`.
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
        """See `CompiledSteps.rows`; a row -1 is none. moved: int32 [R], is told the step's number of the
        touched rows.
        """
        row_step(self.kind, weight_RH, touched, states, fade_U, moved, self.penalties, self.numbers)
