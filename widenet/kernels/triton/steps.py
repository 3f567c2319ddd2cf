"""An optimizer's steps on CUDA, as `kernels.compiled_steps.CompiledSteps` has them on a CPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.compiled_steps import Penalties
from widenet.kernels.triton.row_step import row_step
from widenet.kernels.triton.tile_step import tile_step


@dataclass(frozen=True)
class Steps:
    """The steps of an optimizer of this kind."""

    kind: str

    def tile(self, weight: Tensor, gradient: Tensor, states: Sequence[Tensor], penalties: Penalties, constants: Sequence[float]) -> None:
        """See `CompiledSteps.tile`."""
        tile_step(self.kind, weight, gradient, states, penalties, constants)

    def rows(
        self,
        weight_RH: Tensor,
        touched: RowGradient,
        states: Sequence[Tensor],
        fade_U: Tensor,
        penalties: Penalties,
        constants: Sequence[float],
    ) -> None:
        """See `CompiledSteps.rows`."""
        row_step(self.kind, weight_RH, touched, states, fade_U, penalties, constants)
