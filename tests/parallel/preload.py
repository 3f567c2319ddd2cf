"""What every worker would load before its first step: one process imports this, and the workers are copies
of it.
"""

from widenet.kernels.compiled_sweep import compiled_sweep
from widenet.kernels.fixed_point import compiled_add

# Nothing here may start a thread: a copy of a process is without it.
LOADED = [
    *map(compiled_add, ("float32", "float64")),
    *(compiled_sweep(name, False) for name in ("sigmoid", "softmax_sums", "softmax")),
]
