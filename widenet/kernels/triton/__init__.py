"""The kernels in Triton, one per file with its launcher.

Nothing here is imported unless `table.runner` chooses it.
"""
