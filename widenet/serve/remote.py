"""The process of a model, as a service has it: what the event loop does holds up no operation of a batch.

In one process, both would share Python's lock. The model gives it away in each of some hundred operations a
batch, and would wait for it as often, behind all that arrives.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from types import TracebackType
from typing import TypeVar

import msgspec

from widenet.serve.calls import (
    Answered,
    Batch,
    Call,
    Channel,
    DiedError,
    Failed,
    Loaded,
    LoadRun,
    Refused,
    Reply,
    Search,
    Searched,
)
from widenet.serve.messages import About, Ask, RefusedError

_R = TypeVar("_R", bound=Reply)

PROGRAM = ["-m", "widenet.serve.model_process"]
"""What the process runs; its one argument is `Settings` in JSON."""
_CHANNELS = 3


class Settings(msgspec.Struct):
    """What the process of a model needs before its first call.

    Attributes:
        channels: Descriptors of its channels: for batches, for searches, and for loads.
        data: The dataset of users.
        device: cpu or cuda; None: cuda if there is a device.
        output: The output that recommends, if the network has several.
    """

    channels: list[int]
    data: str | None
    device: str | None
    output: str | None


class ModelProcess:
    """Starts the process of a model, and ends it after the block.

    It ends by itself, too, as soon as this process has ended in whatever way. Signals to end go to this
    process alone.

    Args:
        data: The dataset of users; None without any.
        device: cpu or cuda; None: cuda if there is a device.
        output: The output that recommends, if the network has several.
    """

    def __init__(self, data: str | Path | None, device: str | None, output: str | None) -> None:
        pairs = [socket.socketpair() for _ in range(_CHANNELS)]
        theirs = [other.fileno() for _, other in pairs]
        settings = Settings(theirs, None if data is None else str(data), device, output)
        self._process = subprocess.Popen(  # noqa: S603 # this Python
            [sys.executable, "-P", *PROGRAM, msgspec.json.encode(settings).decode()],
            pass_fds=theirs,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        for _, other in pairs:
            other.close()
        self._ends = [own for own, _ in pairs]
        self.batches, self.searches, self.loads = map(Channel, self._ends)

    def __enter__(self) -> "ModelProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()  # it keeps nothing
        self._process.wait()
        for end in self._ends:
            end.close()

    @property
    def has_died(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    @property
    def end(self) -> str:
        """How it has ended: the name of a signal, or "status 1"."""
        status = self._process.wait()
        return Signals(-status).name if status < 0 else f"status {status}"

    def load(self, run: Path) -> "RemoteModel":
        """Let the model of a run answer from the next batch on, once it has been loaded and checked.

        Raises:
            WidenetError: It cannot be loaded; the one before goes on answering.
            OSError: The same, because of a file.
            MemoryError: The same, because of its size.
            FailedError: The same, for another reason, or the process has died.
        """
        loaded = _asked(self.loads, LoadRun(str(run)), Loaded)
        return RemoteModel(msgspec.json.decode(loaded.about, type=About), loaded.caveats, self)


@dataclass(frozen=True)
class RemoteModel:
    """A model that answers in a process of its own.

    Attributes:
        about: What it says of itself.
        caveats: Sentences to read before trusting it.
        process: Its process.
    """

    about: About
    caveats: list[str]
    process: ModelProcess

    @property
    def fingerprint(self) -> str:
        """SHA-256 of its weights."""
        return self.about.fingerprint

    def answers(self, asks: Sequence[Ask]) -> list[msgspec.Raw | RefusedError]:
        """Return the JSON of the answer to each request, or its refusal; one thread at a time may call it.

        If a newer model has just been loaded, all are of that one.
        """
        answered = _asked(self.process.batches, Batch.of(asks), Answered)
        return [each.error() if isinstance(each, Refused) else msgspec.Raw(each) for each in answered.results]

    def search(self, text: str, most: int, names: Sequence[str]) -> bytes:
        """As `Catalogue.search`, as the JSON of `Finding`; one thread at a time may call it."""
        return _asked(self.process.searches, Search(text, most, [*names]), Searched).finding


_ENCODE = msgspec.json.Encoder().encode
_REPLIES: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def _asked(channel: Channel, call: Call, kind: type[_R]) -> _R:
    """Return the reply to a call, or raise what it says."""
    try:
        channel.send(_ENCODE(call))
        message = channel.receive()
    except (EOFError, OSError):
        raise DiedError("the process of the model died.") from None
    reply = _REPLIES.decode(message)
    if isinstance(reply, Failed | Refused):
        raise reply.error()
    assert isinstance(reply, kind)
    return reply
