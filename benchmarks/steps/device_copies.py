"""The rate of copies between a device and pinned memory of its host."""

from collections.abc import Callable
from typing import Any

import torch


def train(num_bytes: int, ways: int, back: bool, device: str) -> Callable[[int], dict[str, Any]]:
    """Return steps that copy some bytes to the device, or back, or with 2 ways both at the same time."""
    pinned = device == "cuda"
    on_host = [torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=pinned) for _ in range(ways)]
    on_device = [torch.zeros(num_bytes, dtype=torch.uint8, device=device) for _ in range(ways)]

    def copy(way: int) -> None:
        if back ^ (way == 1):
            on_host[way].copy_(on_device[way], non_blocking=pinned)
        else:
            on_device[way].copy_(on_host[way], non_blocking=pinned)

    streams = [torch.cuda.Stream() for _ in range(ways)] if pinned else []  # type: ignore[no-untyped-call]

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            for way in range(ways):
                if pinned:
                    with torch.cuda.stream(streams[way]):
                        copy(way)
                else:
                    copy(way)
        return {"bytes": ways * num_bytes}

    return steps
