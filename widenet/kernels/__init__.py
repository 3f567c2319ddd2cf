"""The operations between the matrix products: sparse and exact sums, tiles of outputs, optimizer steps.

`reference.py` defines every operation in plain torch. `table.py` decides which implementation runs on a
device: torch, Numba's compiled code on CPUs, or Triton's kernels on GPUs (in `triton/`).
"""

from widenet.kernels.bags import RowGradient, Touched, gather_sum, row_gradient
from widenet.kernels.cut import cut
from widenet.kernels.fixed_point import exact_sum, sum_by
from widenet.kernels.order import stable_sort
from widenet.kernels.rows import roomy
from widenet.kernels.running_top_k import RunningTopK, running_top_k

__all__ = [
    "RowGradient",
    "RunningTopK",
    "Touched",
    "cut",
    "exact_sum",
    "gather_sum",
    "roomy",
    "row_gradient",
    "running_top_k",
    "stable_sort",
    "sum_by",
]
