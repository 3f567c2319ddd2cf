"""Measurements of widenet: `python -m benchmarks NAME`."""

import os

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # as `implicit` asks; it counts only before numpy is loaded
