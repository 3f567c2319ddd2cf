"""What every worker would load before its first step: one process imports this, and the workers are copies
of it.
"""

import gc
from importlib import import_module
from pkgutil import iter_modules

from tests import unsynced
from widenet.model import layers

unsynced.begin()
# Nothing here may start a thread: a copy of a process is without it.
MODULES = [
    "pytest",  # what a test hands to a worker is of the test's module, which imports it
    "torch.fx.experimental.symbolic_shapes",  # layers divided by examples import it when they go backward
    "widenet.dsstne.extension",
    "widenet.model.losses",
    "widenet.runs.training",
    *(f"{layers.__name__}.{module.name}" for module in iter_modules(layers.__path__)),
]
LOADED = [*map(import_module, MODULES)]
gc.freeze()  # no copy looks for garbage in what all copies share
