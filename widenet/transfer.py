"""How tensors come to a device: ahead of their use, so that neither the device nor the host waits for
them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The same tensor on another device.

    To CUDA it goes by way of pinned memory, so that the host need not wait until it is there.
    """
    if tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


@dataclass(frozen=True)
class Made(Generic[T]):
    """What was made ahead; `event` is when a device will have made it."""

    value: T
    event: "torch.cuda.Event | None"


class Ahead:
    """Work that is done ahead of its use; on CUDA on a stream of its own, beside the one that computes.

    Elsewhere it is plain work.

    The work may read what the computing stream had made before this was created, and nothing newer.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self.stream.wait_stream(torch.cuda.current_stream(device))

    def make(self, work: Callable[[], T]) -> Made[T]:
        """What some work gives, on its way; in whichever thread."""
        if self.stream is None:
            return Made(work(), None)
        with torch.cuda.stream(self.stream):
            return Made(work(), self.stream.record_event())

    def take(self, made: Made[T]) -> T:
        """The same, for the current stream of this thread, which waits for it; the host does not."""
        if made.event is not None and self.stream is not None:
            computing = torch.cuda.current_stream(self.stream.device)
            computing.wait_event(made.event)
            for tensor in tensors_of(made.value):
                tensor.record_stream(computing)
        return made.value


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors on CUDA in what is built of dataclasses, mappings and sequences."""
    if isinstance(value, Tensor):
        if value.device.type == "cuda":
            yield value
    elif is_dataclass(value):
        for each in fields(value):
            yield from tensors_of(getattr(value, each.name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from tensors_of(item)
