"""Nesterov's accelerated gradient, in the form of Sutskever et al., ICML 2013, section 2.1, as torch has
it.
"""

from widenet.spec.network import Dialect
from widenet.spec.optimizers import Nesterov
from widenet.training.optimizers.momentum import Velocity


def formula(spec: Nesterov, dialect: Dialect) -> Velocity:
    """The formula of the spec."""
    del dialect
    return Velocity(spec.momentum, looks_ahead=True)
