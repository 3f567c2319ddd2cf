"""Moving tensors to a device ahead of their use, so that neither the device nor the host waits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor


def keep_to_one_thread() -> None:
    """Let all torch operations of the calling thread use one thread; a pool calls this in each new thread.

    When a thread first asks for its number, torch sets it to the last number that any thread was given.
    Without the first line, the thread's first operation could so replace the one.
    """
    torch.get_num_threads()
    torch.set_num_threads(1)


T = TypeVar("T")

ON_HOST = {"on_host": True}
"""Metadata of a dataclass's field whose tensors stay in the host's memory."""

_ALIGNED_BYTES = 128
"""A tensor in a buffer of several begins at a multiple of this, which kernels read fastest."""


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy a tensor to a device; to CUDA through pinned memory, so that the host need not wait."""
    if tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def sent_together(value: T, device: torch.device) -> T:
    """Copy all tensors within nested dataclasses, mappings and lists from the host to a CUDA device.

    They travel in one copy, through pinned memory, and become views of one buffer. Those of fields with the
    metadata `ON_HOST` stay. For a CPU nothing is copied.
    """
    if device.type != "cuda":
        return value
    tensors, starts, size = [*tensors_of(value)], dict[int, int](), 0
    for tensor in tensors:
        if id(tensor) not in starts:
            starts[id(tensor)] = size
            size += -(-tensor.numel() * tensor.element_size() // _ALIGNED_BYTES) * _ALIGNED_BYTES

    def place(buffer: Tensor, tensor: Tensor) -> Tensor:
        start = starts[id(tensor)]
        stop = start + tensor.numel() * tensor.element_size()
        return buffer[start:stop].view(tensor.dtype).view(tensor.shape)

    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    for tensor in tensors:
        place(host, tensor).copy_(tensor)
    own = host.to(device, non_blocking=True)
    moved: T = _moved(value, lambda tensor: place(own, tensor))
    return moved


def _moved(value: Any, move: Callable[[Tensor], Tensor]) -> Any:
    """Return a nested value with every tensor but those of `ON_HOST` replaced."""
    if isinstance(value, Tensor):
        return move(value)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: getattr(value, each.name) for each in fields(value) if not each.metadata}
        return replace(value, **{name: _moved(part, move) for name, part in parts.items()})
    if isinstance(value, Mapping):
        return {key: _moved(item, move) for key, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, move) for item in value]
    return value


Made = tuple[T, "torch.cuda.Event | None"]
"""What was made ahead, perhaps still computed on the device, and the event of its end; None: it has ended."""


class Ahead:
    """Runs work ahead of its use: on CUDA in a stream of its own, on other devices at once.

    The work may only read what the computing stream had made before this object was created.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self.stream.wait_stream(torch.cuda.current_stream(device))

    def make(self, work: Callable[[], T]) -> Made[T]:
        """Start some work and return its result; any thread may call this."""
        if self.stream is None:
            return work(), None
        with torch.cuda.stream(self.stream):
            return work(), self.stream.record_event()

    def take(self, made: Made[T]) -> T:
        """Return the value for use in this thread's current stream, which waits for it; the host does not."""
        value, event = made
        if event is not None and self.stream is not None:
            computing = torch.cuda.current_stream(self.stream.device)
            computing.wait_event(event)
            for tensor in tensors_of(value):
                if tensor.is_cuda:
                    tensor.record_stream(computing)
        return value


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors within nested dataclasses, mappings and sequences, but for those of `ON_HOST`."""
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            if not field.metadata:
                yield from tensors_of(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield from tensors_of([*value.values()])
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from tensors_of(item)
