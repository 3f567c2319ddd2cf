"""The rate of a device: its matrix products in bfloat16."""

from collections.abc import Callable
from typing import Any

import torch


def train(size: int, device: str) -> Callable[[int], dict[str, Any]]:
    """Return steps of one product of square matrices of random numbers, and the operations of a step."""
    torch.manual_seed(0)
    left, right = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    name = torch.cuda.get_device_name() if device == "cuda" else "a CPU"

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            left @ right
        return {"operations": 2 * size**3, "device": name}

    return steps
