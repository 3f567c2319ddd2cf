"""The training data of all programs: histories in CSR form, in a new order in each epoch."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def histories(folder: str) -> "csr_matrix":
    """Load the histories that `benchmarks.synthetic` wrote, float32 [examples, width]."""
    from scipy.sparse import csr_matrix  # a machine with a device may lack it

    indptr, indices, width = (
        np.load(Path(folder) / f"{name}.npy") for name in ("indptr", "indices", "width")
    )
    return csr_matrix(
        (np.ones(len(indices), dtype=np.float32), indices, indptr), shape=(len(indptr) - 1, int(width))
    )


def batches(matrix: "csr_matrix", size: int) -> Iterator["csr_matrix"]:
    """Yield batches of `size` examples without end."""
    return (matrix[rows] for rows in orders(matrix.shape[0], size))


def orders(examples: int, size: int) -> Iterator[np.ndarray]:
    """Yield the examples of each batch, without end."""
    order = np.random.default_rng(0)
    while True:
        rows = order.permutation(examples)
        for start in range(0, len(rows) - size + 1, size):
            yield rows[start : start + size]
