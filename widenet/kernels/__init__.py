"""The operations between the matrix products: sparse and exact sums, tiles of outputs, optimizer steps.

`reference.py` defines every operation in plain torch. `native.py` decides which implementation runs on a
device: torch, the native library on CPUs, or Triton's kernels on GPUs (in `triton/`).
"""
