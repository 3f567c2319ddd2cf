"""The program of a model's process: it answers batches, searches titles and loads newer models.

Each of the three has a channel and a thread. `ModelProcess` starts it.
"""

import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from threading import Thread

import msgspec

from widenet.data.dataset import Dataset
from widenet.one_thread import keep_to_one_thread
from widenet.parallel.threads import fixed_arithmetic
from widenet.serve.batches import tell
from widenet.serve.calls import (
    Answered,
    Batch,
    Call,
    Channel,
    Failed,
    Loaded,
    LoadRun,
    Plain,
    Refused,
    Reply,
    Searched,
)
from widenet.serve.engine import Engine
from widenet.serve.messages import Finding, RefusedError
from widenet.serve.remote import Settings

_SECONDS_IN_TURN = 0.0002
"""How long a thread that loads or searches runs Python while the one of the batches waits to.

After each compiled call, that one may have to wait so long before it goes on.
"""

_encode = msgspec.json.Encoder().encode


class _Served:
    """The model that answers, and what is loaded once for all models."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dataset: Dataset | None = None
        self._engine: Engine | None = None

    def reply(self, call: Call) -> Reply:
        """Return the reply to a call."""
        try:
            if isinstance(call, LoadRun):
                return self._load(call.run)
            engine = self._engine
            assert engine is not None
            if isinstance(call, Batch):
                return Answered.of(engine.answers(call.asks()))
            found = engine.catalogue.search(call.text, call.most, call.names)
            return Searched(_encode(Finding(engine.fingerprint, found)))
        except RefusedError as refused:
            return Refused.of(refused)
        except Exception as error:
            if not (isinstance(call, LoadRun) and isinstance(error, Plain)):  # the service tells these
                tell("the model failed", error)
            return Failed.of(error)

    def _load(self, run: str) -> Loaded:
        before, settings = self._engine, self._settings
        if self._dataset is None and settings.data is not None:
            self._dataset = Dataset.open(settings.data)
        engine = Engine.load(run, self._dataset, settings.device, settings.output, before)
        loaded = Loaded(_encode(engine.about), [*engine.model.caveats()])
        if before is None:
            # Walking through all that was imported and loaded would hold up batches for tenths of a second.
            gc.collect()
            gc.freeze()
        self._engine = engine
        return loaded


def _answer(channel: Channel, reply: Callable[[Call], Reply]) -> None:
    """Answer the calls of a channel; its end is that of the process, whatever other threads do."""
    calls: msgspec.json.Decoder[Call] = msgspec.json.Decoder(Call)
    encode = msgspec.msgpack.Encoder().encode
    try:
        while True:
            channel.send(encode(reply(calls.decode(channel.receive()))))
    except (EOFError, OSError):  # the service has ended
        os._exit(0)
    except BaseException as error:  # the service must not wait for a reply
        tell("the process of the model failed", error)
        os._exit(1)


def main(settings: str) -> None:
    """Answer calls until the service has ended."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the service answers what it has accepted
    keep_to_one_thread()  # so that no thread that loads changes it beside the one that computes
    sys.setswitchinterval(_SECONDS_IN_TURN)
    given = msgspec.json.decode(settings, type=Settings)
    served = _Served(given)
    batches, searches, loads = (Channel(socket.socket(fileno=number)) for number in given.channels)
    with fixed_arithmetic():
        for name, channel in (("searches", searches), ("loads", loads)):
            Thread(target=_answer, name=name, args=(channel, served.reply), daemon=True).start()
        _answer(batches, served.reply)


if __name__ == "__main__":
    main(sys.argv[1])
