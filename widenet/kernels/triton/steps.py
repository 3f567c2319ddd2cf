"""Optimizer steps on CUDA, the counterpart of `kernels.optimizer_steps.TileStep` on a CPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from widenet.kernels.bags import RowGradient
from widenet.kernels.optimizer_steps import Penalties
from widenet.kernels.triton.many_steps import many_steps
from widenet.kernels.triton.row_step import row_step
from widenet.kernels.triton.tile_step import tile_step


@dataclass(frozen=True)
class Steps:
    """The steps of one optimizer.

    Attributes:
        kind: Its kind.
        penalties: Its penalties.
        constants: Constants of its formula.
    """

    kind: str
    penalties: Penalties
    constants: Sequence[float]

    def tile(self, weight: Tensor, gradient: Tensor, states: Sequence[Tensor]) -> None:
        """See `TileStep.tile`."""
        tile_step(self.kind, weight, gradient, states, self.penalties, self.constants)

    def tiles(self, weights: Sequence[tuple[Tensor, Tensor, Sequence[Tensor]]]) -> None:
        """Make the step of several weights, given as weight, gradient and states; see `tile`."""
        many_steps(self.kind, weights, self.penalties, self.constants)

    def rows(
        self,
        weight_RH: Tensor,
        touched: RowGradient,
        states: Sequence[Tensor],
        fade_U: Tensor,
        moved: Tensor | None,
        number: int,
    ) -> None:
        """See `TileStep.rows`; notes the step's number in `moved`, int32 [R], if there is one."""
        row_step(self.kind, weight_RH, touched, states, fade_U, moved, number, self.penalties, self.constants)
