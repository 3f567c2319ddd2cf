"""What every worker would load before its first step: one process imports this, and the workers are copies of it."""

from widenet.kernels.compiled import compiled_add, compiled_softplus_sum

# Nothing here may start a thread: a copy of a process is without it.
LOADED = [compiled_add("float32"), compiled_add("float64"), compiled_softplus_sum()]
