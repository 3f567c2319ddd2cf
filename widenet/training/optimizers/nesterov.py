"""Nesterov's accelerated gradient, in torch's form (Sutskever et al., ICML 2013, section 2.1)."""

from widenet.spec.optimizers import Nesterov
from widenet.training.optimizers.momentum import Velocity


def formula(spec: Nesterov) -> Velocity:
    """The formula of the spec."""
    return Velocity(spec.momentum, looks_ahead=True)
