"""What every worker would load before its first step, loaded once: the workers are copies of the process that imports this."""

from widenet.kernels.compiled import compiled_add, compiled_softplus_sum

# Nothing here may start a thread: those of a copied process are gone.
LOADED = [compiled_add("float32"), compiled_add("float64"), compiled_softplus_sum()]
