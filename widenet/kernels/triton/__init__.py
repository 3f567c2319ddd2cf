"""The kernels in Triton: one and its launcher a file.

Nothing here is imported unless `table.runner` says so.
"""
