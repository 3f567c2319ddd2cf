"""Streams of a device that is none: who made a tensor, and who has waited for it."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

DEFAULT = "the stream that trains"


class StreamError(RuntimeError):
    """A tensor in the hands of a stream that has not waited for it, or that nobody will wait for when its
    memory is given to others.
    """


class Stream:
    """What is done on it has numbers; of every other stream it knows how far it has waited for it."""

    def __init__(self, device=None, priority=0, name=None):
        del priority
        self.device = device
        self.name = name or "a second stream"
        self.done, self.seen = 0, {}

    def wait_event(self, event):
        for stream, number in event.known.items():
            self.seen[stream] = max(self.seen.get(stream, 0), number)

    def wait_stream(self, other):
        self.wait_event(other.record_event())

    def synchronize(self):
        """The host waits until all is done, and so has what was copied to it."""
        from tests.simulated import pinned

        pinned.arrive(self)

    def record_event(self, event=None):
        event = event or Event()
        event.record(self)
        return event


class Event:
    """How far some stream had come, and what it had waited for."""

    def __init__(self, *_, **__):
        self.known = {}

    def record(self, stream=None):
        stream = stream or current()
        self.known = {**stream.seen, stream: stream.done}

    def wait(self, stream=None):
        (stream or current()).wait_event(self)


class Memory:
    """Who may use it, who wrote last and what number that writing has, and who has read since."""

    def __init__(self, maker: Stream) -> None:
        self.users, self.writer, self.number = {maker}, maker, maker.done
        self.readers: dict[Stream, int] = {}


class _Local(threading.local):
    stream = None


_local = _Local()
_default = Stream(name=DEFAULT)
_memories: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()
_lock = threading.RLock()


def current(_device=None) -> Stream:
    """The stream of this thread."""
    return _local.stream or _default


def memory_of(held: Tensor) -> Memory:
    """The memory in which a tensor lies; of new one the current stream is the maker, who writes into it."""
    key = held.untyped_storage()._cdata
    with _lock:
        memory = _memories.get(key)
        if memory is None:
            memory = _memories[key] = Memory(current())
            write(memory)
        return memory


def write(memory: Memory) -> None:
    """The current stream writes into memory; raises StreamError if another one may still read there."""
    stream = current()
    with _lock:
        for reader, number in memory.readers.items():
            if reader is not stream and stream.seen.get(reader, 0) < number:
                raise StreamError(f"{stream.name} writes over what {reader.name} may still read")
        memory.readers.clear()
        stream.done += 1
        memory.writer, memory.number = stream, stream.done


def read(memory: Memory) -> None:
    """The current stream uses memory; raises StreamError."""
    stream = current()
    with _lock:
        if memory.writer is not stream and stream.seen.get(memory.writer, 0) < memory.number:
            raise StreamError(
                f"{stream.name} uses what {memory.writer.name} has written, and has not waited for it"
            )
        if not memory.users & {stream, _default}:
            raise StreamError(f"{stream.name} uses memory of another stream, which nobody has recorded")
        stream.done += 1
        memory.readers[stream] = stream.done


@contextmanager
def within(stream):
    """See `torch.cuda.stream`."""
    before, _local.stream = _local.stream, stream
    try:
        yield
    finally:
        _local.stream = before


@contextmanager
def simulated(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch's streams are these."""
    patch.setattr(torch.cuda, "Stream", Stream)
    patch.setattr(torch.cuda, "Event", Event)
    patch.setattr(torch.cuda, "stream", within)
    patch.setattr(torch.cuda, "current_stream", current)
    _memories.clear()
    try:
        yield
    finally:
        _memories.clear()
