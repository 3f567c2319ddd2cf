"""Which devices get Triton's kernels: CUDA, where Triton can be imported.

All other code is torch's operations, and Numba's on a CPU.
"""

import os
from functools import cache
from importlib.util import find_spec

import torch


@cache
def has_triton() -> bool:
    """Whether Triton can be imported."""
    return find_spec("triton") is not None


def runs_triton(device: torch.device) -> bool:
    """Whether a device runs Triton's kernels.

    With TRITON_INTERPRET=1 a CPU does too, through Triton's interpreter: slow, for tests.
    """
    return has_triton() and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")
