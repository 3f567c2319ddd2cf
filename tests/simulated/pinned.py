"""Pinned memory beside a device that is none: copies into it arrive only when the host waits for them."""

import threading
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from tests.simulated import streams

crossed: Counter[tuple[str, str]] = Counter()
"""Bytes that crossed to the device ("in") or back to the host ("out"), by direction and place in widenet."""

_registered: dict[int, int] = {}
_pending: list[tuple[streams.Stream, int, Tensor, Tensor]] = []
_lock = threading.RLock()


def is_pinned(tensor: Tensor) -> bool:
    """Whether a tensor of the host lies in pinned memory."""
    if tensor.is_cuda or getattr(tensor, "pinned", False):
        return not tensor.is_cuda
    first = tensor.data_ptr()
    return any(start <= first < start + size for start, size in _registered.items())


def start_copy(target: Tensor, source: Tensor) -> None:
    """Begin to copy what the device holds now to the host; the host sees it once it has waited."""
    stream = streams.current()
    with _lock:
        stream.done += 1
        _pending.append((stream, stream.done, target, source.clone()))


def arrive(stream: streams.Stream) -> None:
    """The host has waited for a stream, and so for all that the stream has waited for."""
    with _lock:
        for each in [*_pending]:
            maker, number, target, source = each
            if maker is stream or stream.seen.get(maker, 0) >= number:
                target.copy_(source)
                _pending.remove(each)


def read(tensor: Tensor) -> None:
    """The current stream reads memory of the host; raises StreamError if something may still arrive there."""
    first, stream = tensor.data_ptr(), streams.current()
    last = first + tensor.numel() * tensor.element_size()
    with _lock:
        arriving = [
            (maker, number)
            for maker, number, target, _ in _pending
            if target.data_ptr() < last and first < target.data_ptr() + target.numel() * target.element_size()
        ]
    for maker, number in arriving:
        if maker is not stream and stream.seen.get(maker, 0) < number:
            raise streams.StreamError(f"{stream.name} reads memory into which {maker.name} is still copying")
    if arriving:
        arrive(stream)


def simulated(patch: pytest.MonkeyPatch) -> None:
    """Torch pins memory here."""
    crossed.clear()
    _pending.clear()

    def register(address: int, size: int, _: int) -> int:
        _registered[address] = size
        return 0

    runtime = SimpleNamespace(
        cudaHostRegister=register, cudaHostUnregister=lambda at: _registered.pop(at) * 0
    )
    patch.setattr(torch.cuda, "cudart", lambda: runtime)
    patch.setattr(Tensor, "is_pinned", is_pinned)
