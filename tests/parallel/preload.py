"""What every worker would load before its first step: one process imports this, and the workers are copies
of it.
"""

from widenet.kernels.compiled_tiles import compiled_tiles
from widenet.kernels.fixed_point import compiled_add

# Nothing here may start a thread: a copy of a process is without it.
LOADED = [compiled_add("float32"), compiled_add("float64"), compiled_tiles()]
