"""What a service asks the process of its model, what that answers, and the channels between them.

Calls are JSON, which has numbers of any size, as requests do. Replies are MessagePack, which holds the JSON
of an answer as it is: the service itself never reads a list of items.
"""

import builtins
import os
import socket
from collections.abc import Sequence
from struct import Struct as Layout

import msgspec

from widenet import errors
from widenet.errors import WidenetError, is_out_of_memory
from widenet.serve.messages import Answer, Ask, Explain, Mistake, Recommend, RefusedError, Score, Similar

_LENGTH = Layout("<Q")

Plain = WidenetError | OSError | MemoryError
"""Errors whose message says enough without the place where they were raised."""


class Batch(msgspec.Struct, tag=True):
    """Requests to answer together, by their places; the reply is `Answered`."""

    recommend: dict[int, Recommend]
    score: dict[int, Score]
    similar: dict[int, Similar]
    explain: dict[int, Explain]

    @classmethod
    def of(cls, asks: Sequence[Ask]) -> "Batch":
        """Return a batch of some requests."""
        batch = cls({}, {}, {}, {})
        for place, ask in enumerate(asks):
            if isinstance(ask, Recommend):
                batch.recommend[place] = ask
            elif isinstance(ask, Score):
                batch.score[place] = ask
            elif isinstance(ask, Similar):
                batch.similar[place] = ask
            else:
                batch.explain[place] = ask
        return batch

    def asks(self) -> list[Ask]:
        """Return the requests, in order."""
        found: dict[int, Ask] = {**self.recommend, **self.score, **self.similar, **self.explain}
        return [found[place] for place in range(len(found))]


class Search(msgspec.Struct, tag=True):
    """A text that items are searched for, as in `Catalogue.search`; the reply is `Found`, or `Refused`."""

    text: str
    most: int
    names: list[str]


class LoadRun(msgspec.Struct, tag=True):
    """A run whose model is to answer from the next batch on; the reply is `Loaded`."""

    run: str


Call = Batch | Search | LoadRun


class Refused(msgspec.Struct, tag=True):
    """A request that is refused, as `RefusedError` has it."""

    status: int
    mistake: Mistake
    headers: dict[str, str]

    @classmethod
    def of(cls, error: RefusedError) -> "Refused":
        """Return the message for an exception."""
        return cls(error.status, error.mistake, error.headers)

    def error(self) -> RefusedError:
        """Return the exception."""
        return RefusedError(self.status, self.mistake.code, self.mistake.message, self.headers)


class Answered(msgspec.Struct, tag=True):
    """The JSON of the answer to each request of a batch, or why there is none."""

    results: list[bytes | Refused]

    @classmethod
    def of(cls, results: Sequence[Answer | RefusedError]) -> "Answered":
        """Return the message for results."""
        encode = msgspec.json.Encoder().encode
        return cls([Refused.of(each) if isinstance(each, RefusedError) else encode(each) for each in results])


class Searched(msgspec.Struct, tag=True):
    """The JSON of what a search has found."""

    finding: bytes


class Loaded(msgspec.Struct, tag=True):
    """A model answers.

    Attributes:
        about: The JSON of what it says of itself.
        caveats: Sentences to read before trusting it.
    """

    about: bytes
    caveats: list[str]


class Failed(msgspec.Struct, tag=True):
    """An exception that was not meant for whoever asks.

    Attributes:
        kind: Name of its class.
        message: Its message.
        number: The number of an error of the system, if it has one.
        path: The file that such an error is about.
        is_of_system: Whether the system caused it; see `is_of_system`.
    """

    kind: str
    message: str
    number: int | None
    path: str | None
    is_of_system: bool

    @classmethod
    def of(cls, error: Exception) -> "Failed":
        """Return the message for an exception."""
        kind = "MemoryError" if is_out_of_memory(error) else type(error).__name__
        number, path = (error.errno, error.filename) if isinstance(error, OSError) else (None, None)
        return cls(kind, str(error), number, None if path is None else str(path), is_of_system(error))

    def error(self) -> Exception:
        """Return an exception: the same for a plain error, else `FailedError`."""
        kind = getattr(errors, self.kind, None) or getattr(builtins, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, Plain):
            named = () if self.number is None else (self.number, os.strerror(self.number), self.path)
            error: Exception = kind(*(named or [self.message]))
        else:
            error = FailedError(f"{self.kind}: {self.message}")
        error.__cause__ = OSError() if self.is_of_system else None
        return error


class FailedError(Exception):
    """The process of a model failed on a call; the message names the exception there, if it could tell."""


class DiedError(FailedError):
    """The process of the model has died: it answers no further call."""


Reply = Answered | Searched | Loaded | Refused | Failed


def is_of_system(error: BaseException) -> bool:
    """Return whether the system caused an error: a disk was away, or too many files were open."""
    return any(isinstance(each, OSError) for each in (error, error.__cause__, error.__context__))


class Channel:
    """One end of a stream of messages between two processes; one thread at a time may use it.

    Python's lock is free during each of its two or three system calls for a message, and held in between.

    Args:
        end: A connected socket, which blocks.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: bytes) -> None:
        """Send a message; raises OSError if nobody has the other end."""
        self._end.sendall(_LENGTH.pack(len(message)) + message)

    def receive(self) -> bytearray:
        """Wait for a message; raises EOFError if nobody has the other end."""
        (number,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        return self._exactly(number)

    def _exactly(self, number: int) -> bytearray:
        received = bytearray(number)
        left = memoryview(received)
        while left:
            count = self._end.recv_into(left, 0, socket.MSG_WAITALL)
            if not count:
                raise EOFError
            left = left[count:]
        return received
