"""The operations between the matrix products: sparse and exact sums, tiles of outputs, optimizer steps.

`reference.py` defines every operation in plain torch. `table.py` decides which implementation runs on a
device: torch, Numba's compiled code on CPUs, or Triton's kernels on GPUs (in `triton/`).
"""

from typing import TYPE_CHECKING

from widenet.late_imports import late_names

if TYPE_CHECKING:
    from widenet.kernels.bags import RowGradient, Touched, gather_sum, row_gradient
    from widenet.kernels.fixed_point import exact_sum, sum_by
    from widenet.kernels.order import stable_sort
    from widenet.kernels.rows import roomy, roomy_beside
    from widenet.kernels.running_top_k import RunningTopK

_HOME = {
    "RowGradient": "widenet.kernels.bags:RowGradient",
    "RunningTopK": "widenet.kernels.running_top_k:RunningTopK",
    "Touched": "widenet.kernels.bags:Touched",
    "exact_sum": "widenet.kernels.fixed_point:exact_sum",
    "gather_sum": "widenet.kernels.bags:gather_sum",
    "roomy": "widenet.kernels.rows:roomy",
    "roomy_beside": "widenet.kernels.rows:roomy_beside",
    "row_gradient": "widenet.kernels.bags:row_gradient",
    "stable_sort": "widenet.kernels.order:stable_sort",
    "sum_by": "widenet.kernels.fixed_point:sum_by",
}

__all__ = [
    "RowGradient",
    "RunningTopK",
    "Touched",
    "exact_sum",
    "gather_sum",
    "roomy",
    "roomy_beside",
    "row_gradient",
    "stable_sort",
    "sum_by",
]

__getattr__ = late_names(__name__, _HOME)
