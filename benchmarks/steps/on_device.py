"""Steps of another module on a device: every turn waits for the device, and tells its peak memory."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

Steps = Callable[[int], dict[str, Any]]


def train(place: str, device: str, **job: Any) -> Steps:
    """Return the steps of `place`, MODULE:FUNCTION, on a device; job: its other arguments.

    Libraries are loaded at once. The device's memory is taken by the first step.
    """
    module, _, function = place.partition(":")
    make: Callable[..., Steps] = getattr(import_module(module), function)
    made: list[Steps] = []

    def steps(number: int) -> dict[str, Any]:
        if not made:
            made.append(make(device=device, **job))
        if device == "cpu":
            return made[0](number)
        torch.cuda.reset_peak_memory_stats()
        facts = made[0](number)
        torch.cuda.synchronize()
        return {**facts, "peak_bytes": torch.cuda.max_memory_allocated()}

    return steps
