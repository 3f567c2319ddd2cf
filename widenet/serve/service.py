"""Starts a service: refuse what is wrong, bind the port, load the model, answer until SIGTERM."""

import gc
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
import uvicorn

from widenet.data.dataset import Dataset
from widenet.errors import OptionError
from widenet.serve.app import Service
from widenet.serve.arguments import ServeArguments
from widenet.serve.batches import ModelThread, Rhythm
from widenet.serve.direct import direct
from widenet.serve.engine import Engine
from widenet.serve.following import Follower, state_of
from widenet.serve.guard import guard_of
from widenet.serve.listening import address_of, bound, configuration, listen
from widenet.serve.measurements import Measurements
from widenet.serve.messages import Bounds
from widenet.training.existing_run import check_run

_BYTES, _BYTES_A_NUMBER = 2**20, 24
"""Largest body, unless dense fields need more: a number of JSON with a comma has at most so many bytes."""
_SECONDS_IN_TURN = 0.0002
"""How long the event loop runs Python while the thread of the model waits to, and the other way round.

After each compiled call, the thread of the model may have to wait so long before it goes on.
"""
_SECONDS_TO_ANSWER = 10
"""Seconds that a request may still take after its deadline, once the service ends."""


def serve(arguments: ServeArguments, say: Callable[[str], None], url: Callable[[str], None]) -> None:
    """Answer requests until SIGTERM or Ctrl-C; what was accepted before is answered.

    Args:
        arguments: What to serve, where, and within which bounds.
        say: Called with sentences to read before trusting the model.
        url: Called with the address when the service is ready.

    Raises:
        WidenetError: The run, the dataset, the token or the port cannot be used.
    """
    run = Path(arguments.run)
    guard = guard_of(
        arguments.host, arguments.token_file, arguments.allow_host, arguments.max_bytes or _BYTES
    )
    check_run(run)
    if arguments.runs is not None and guard.token is None:
        raise OptionError("`runs` needs `token_file`: only requests with a token may load runs.")
    if arguments.runs is not None and not Path(arguments.runs).is_dir():
        raise OptionError(f"`runs` must be a folder of runs; {arguments.runs} is none. Check the path.")
    torch.set_num_threads(1)  # so that no thread that loads changes it beside the one that computes
    with bound(arguments.host, arguments.port) as listening:
        dataset = None if arguments.data is None else Dataset.open(arguments.data)
        state = state_of(run)  # before the load, so that no model that is published meanwhile is missed
        engine = Engine.load(run, dataset, arguments.device, arguments.output)
        for sentence in engine.model.caveats():
            say(sentence)
        if arguments.max_bytes is None:
            widest = max((field.width for field in engine.about.fields if field.kind == "dense"), default=0)
            guard = replace(guard, max_bytes=_BYTES + widest * _BYTES_A_NUMBER)
        rhythm = Rhythm(
            arguments.max_batch,
            arguments.max_delay_ms / 1000,
            arguments.queue,
            arguments.max_wait_ms / 1000,
            arguments.deadline_ms / 1000,
        )
        model = ModelThread(engine, rhythm, Measurements())

        def load(path: Path) -> Engine:
            before = model.engine
            assert isinstance(before, Engine)
            return Engine.load(path, dataset, arguments.device, arguments.output, before)

        bounds = Bounds(arguments.max_items, arguments.max_k, min(arguments.queue, arguments.max_batch))
        runs = None if arguments.runs is None else Path(arguments.runs)
        service = Service(model, Follower(run, state, model, load), guard, bounds, runs)
        seconds_to_end = int(rhythm.deadline_seconds) + _SECONDS_TO_ANSWER
        connection = direct(service.asking, guard)
        config = configuration(service.app(), "on", seconds_to_end, connection)
        # Walking through all that was imported and loaded would hold up all requests for tenths of a second.
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(_SECONDS_IN_TURN)
        listen(listening)
        url(address_of(listening))
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal again after the last answer
            _Server(config, service).run(sockets=[listening])
        if model.has_died:
            raise SystemExit("widenet: the service ended because the thread of its model died.")


class _Server(uvicorn.Server):
    """uvicorn's server, which ends if the thread of the model does, and then waits for no load."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; called ten times a second."""
        return self._service.model.has_died or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was accepted."""
        self._service.loads.end()
        await super().shutdown(sockets)
