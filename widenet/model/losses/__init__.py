"""Losses: one file each, named for the kind in the network document."""

from importlib import import_module
from typing import Protocol

from torch import Tensor

from widenet.spec.activations import Activation
from widenet.spec.losses import Loss as LossSpec


class Loss(Protocol):
    """A loss over units, seen from a tile of logits.

    z: logits; a: activations, shaped like z; t: targets. Everything elementwise.
    """

    slope_of_logit: bool
    """Whether slopes are derivatives by the logit; else by the activation."""

    def cells(self, z: Tensor, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Value and slope of units with a target t."""

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Value and slope of units that no sparse target names."""

    def weights(self, num_targets_E: Tensor, width: int, weight_E: Tensor) -> tuple[Tensor, Tensor]:
        """What targets and other units count, float32 [E] each, for examples that count `weight_E`."""

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        """Under a softmax: value of each target, and how strongly it pulls its logit up.

        log_p_Z: log of the target's probability; t_Z: its value; share_Z: its value's share of the example's
        sum. The gradient by the logits is p * (sum of the example's pulls) - pull.
        """


def loss_of(spec: LossSpec, activation: Activation) -> Loss:
    """The loss that a spec describes, for an output of that activation."""
    module = import_module(f"{__name__}.{spec.kind}")
    loss: Loss = module.loss(spec, activation)
    return loss
