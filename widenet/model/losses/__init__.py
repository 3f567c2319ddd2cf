"""Losses: one file each, named after the kind in the network document."""

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
        """Return value and slope of units with a target t."""

    def others(self, z: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and slope of units that are no sparse target."""

    def weights(self, num_targets_E: Tensor, width: int, weight_E: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss weights of targets and of other units, float32 [E] each, from those of the examples."""

    def pulls(self, log_p_Z: Tensor, t_Z: Tensor, share_Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return, under a softmax, the value of each target, and its pull on its logit.

        The gradient to the logits is p * (sum of the example's pulls) - pull.

        Args:
            log_p_Z: Logarithm of each target's probability.
            t_Z: Its value.
            share_Z: Its share of the sum of the example's values.
        """


def loss_of(spec: LossSpec, activation: Activation) -> Loss:
    """Return the loss of a spec for an output with an activation."""
    module = import_module(f"{__name__}.{spec.kind}")
    loss: Loss = module.loss(spec, activation)
    return loss
