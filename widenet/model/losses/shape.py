"""The base of most losses: every unit has its example's weight, and there is no closed form under softmax."""

from abc import ABC, abstractmethod

from torch import Tensor


class UnitLoss(ABC):
    """A loss that adds up over units."""

    slope_of_logit = False

    @abstractmethod
    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """See `Loss.others`."""

    def weights(self, num_targets_E: Tensor, width: int, weight_E: Tensor) -> tuple[Tensor, Tensor]:
        """Return the examples' weights for all units."""
        del num_targets_E, width
        return weight_E, weight_E

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        """Only the cross-entropies have a closed form under a softmax."""
        del log_p_Z, t_Z, share_Z
        raise AssertionError("this loss has no closed form under a softmax")
