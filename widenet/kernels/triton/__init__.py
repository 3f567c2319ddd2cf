"""The kernels in Triton, one per file with its launcher.

Nothing here is imported unless `native.triton_runs` says so.
"""
