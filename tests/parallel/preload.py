"""What every worker would load before its first step: one process imports this, and the workers are copies
of it.
"""

import gc
from importlib import import_module

from tests import unsynced
from widenet.kernels.compiled_ranking import compiled_ranking
from widenet.kernels.compiled_search import compiled_choice
from widenet.kernels.compiled_sorts import compiled_cut, compiled_group, compiled_sort
from widenet.kernels.compiled_sums import compiled_sum
from widenet.kernels.compiled_sweep import compiled_sweep
from widenet.kernels.fixed_point import compiled_add

unsynced.begin()
# Nothing here may start a thread: a copy of a process is without it.
LOADED = [
    import_module(
        "torch.fx.experimental.symbolic_shapes"
    ),  # layers divided by examples import it when they go backward
    *map(compiled_add, ("float32", "float64")),
    *(compiled_sweep(name, False) for name in ("sigmoid", "softmax_sums", "softmax")),
    compiled_sum("float32"),
    compiled_sort(),
    compiled_group(),
    *map(compiled_cut, ("int32", "int64")),
    compiled_ranking(),
    compiled_choice(),
]
gc.freeze()  # no copy looks for garbage in what all copies share
