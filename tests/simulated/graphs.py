"""CUDA graphs of a device that is none: what is recorded is done again over the same memory; what a
recording refuses is refused.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.simulated import streams


class CaptureError(RuntimeError):
    """What cannot be recorded: the host waits, or memory of the host goes in, or a kernel would have to be
    compiled first.
    """


@dataclass
class Entry:
    """An operation: what does it, the tensors it reads and those of them it writes, and what it made."""

    work: Callable[[], Any]
    given: list[Any]
    written: list[Any]
    made: list[Tensor]

    def again(self, own: set[int]) -> None:
        """Do it once more. own: the memory of the graph, which nobody need wait for."""
        for tensor in self.given:
            if storage_of(tensor.held) not in own:
                streams.read(tensor.memory)
        for before, tensor in zip(self.made, _new(self.work(), self.given), strict=True):
            before.copy_(tensor)
        for tensor in self.written:
            streams.write(tensor.memory)


class Graph:
    """A recording: its operations, and what the memory that it changed held before, for recording does
    nothing.
    """

    def __init__(self, keep_graph=False):
        del keep_graph
        self.entries: list[Entry] = []
        self.own: set[int] = set()
        self.before: dict[int, tuple[Any, Tensor, Any, int]] = {}

    def note(self, work, given, written):
        for tensor in written:
            key = storage_of(tensor.held)
            if key not in self.own and key not in self.before:
                self.before[key] = (
                    tensor,
                    _bytes(tensor.held).clone(),
                    tensor.memory.writer,
                    tensor.memory.number,
                )
        found = work()
        entry = Entry(work, given, written, _new(found, given))
        self.entries.append(entry)
        self.own |= {storage_of(tensor) for tensor in entry.made}
        return found

    def undo(self) -> None:
        """Give back what the memory held, and leave what was made undefined."""
        for tensor, held, writer, number in self.before.values():
            _bytes(tensor.held).copy_(held)
            tensor.memory.writer, tensor.memory.number = writer, number
        for tensor in (
            tensor for entry in self.entries for tensor in entry.made if tensor.is_floating_point()
        ):
            tensor.fill_(torch.nan)

    def replay(self):
        if recording() is not None:
            raise CaptureError("a graph is replayed while another is recorded")
        replayed.append(self)
        for entry in self.entries:
            entry.again(self.own)
        for tensor in (tensor for entry in self.entries for tensor in entry.made):
            memory = streams.memory_of(tensor)
            memory.users.add(streams.current())
            streams.write(memory)


class _Local(threading.local):
    graph: Graph | None = None


_local = _Local()
replayed: list[Graph] = []
"""A graph for every replay."""


def recording() -> Graph | None:
    """The graph that this thread records."""
    return _local.graph


def refuse(reason: str) -> None:
    """Raise CaptureError if this thread records a graph."""
    if recording() is not None:
        raise CaptureError(f"{reason} while a graph is recorded")


def noted(work: Callable[[], Any], given: list[Any], written: list[Any]) -> Any:
    """What some work gives, which is part of the graph that this thread records, if any. given: all
    tensors; written: some of them.
    """
    graph = recording()
    return work() if graph is None else graph.note(work, given, written)


def storage_of(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _new(found: Any, given: list[Any]) -> list[Tensor]:
    """The tensors of a result that lie in no memory of the arguments."""
    old = {storage_of(tensor.held) for tensor in given}
    return [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor) and storage_of(leaf) not in old]


def _bytes(tensor: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


@contextmanager
def captured(graph, pool=None, stream=None, capture_error_mode="global") -> Iterator[None]:
    """See `torch.cuda.graph`; another thread is at work, so that only a recording of this thread's calls
    will do.
    """
    del pool, stream
    if capture_error_mode != "thread_local":
        raise CaptureError("another thread would end the recording")
    beside = streams.Stream(name="the stream that records")
    beside.wait_stream(streams.current())
    with streams.within(beside):
        _local.graph = graph
        try:
            yield
        finally:
            _local.graph = None
            graph.undo()


@contextmanager
def simulated(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's graphs are these."""
    replayed.clear()
    patch.setattr(torch.cuda, "CUDAGraph", Graph)
    patch.setattr(torch.cuda, "graph", captured)
    yield
    replayed.clear()
