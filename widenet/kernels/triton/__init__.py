"""The kernels in Triton: one and its launcher a file.

Nothing here is imported unless `devices.runs_triton` says so.
"""
