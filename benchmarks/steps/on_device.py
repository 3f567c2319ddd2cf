"""Steps of another module on a device: every turn waits for the device, and tells its peak memory."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch


def train(place: str, device: str, **job: Any) -> Callable[[int], dict[str, Any]]:
    """Return the steps of `place`, MODULE:FUNCTION, on a device; job: its other arguments."""
    module, _, function = place.partition(":")
    own: Callable[[int], dict[str, Any]] = getattr(import_module(module), function)(device=device, **job)
    if device == "cpu":
        return own

    def steps(number: int) -> dict[str, Any]:
        torch.cuda.reset_peak_memory_stats()
        facts = own(number)
        torch.cuda.synchronize()
        return {**facts, "peak_bytes": torch.cuda.max_memory_allocated()}

    return steps
