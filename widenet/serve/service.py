"""Starts a service: refuse what is wrong, bind the port, load the model, answer until SIGTERM."""

import gc
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import uvicorn

from widenet.errors import OptionError
from widenet.serve.app import Service
from widenet.serve.arguments import ServeArguments
from widenet.serve.batches import ModelThread, Rhythm
from widenet.serve.calls import FailedError
from widenet.serve.direct import direct
from widenet.serve.following import Follower, state_of
from widenet.serve.guard import guard_of
from widenet.serve.listening import address_of, bound, configuration, listen
from widenet.serve.measurements import Measurements
from widenet.serve.messages import Bounds
from widenet.serve.remote import ModelProcess
from widenet.training.existing_run import check_run

_BYTES, _BYTES_A_NUMBER = 2**20, 24
"""Largest body, unless dense fields need more: a number of JSON with a comma has at most so many bytes."""
_SECONDS_IN_TURN = 0.0002
"""How long the event loop runs Python while the thread of the model waits to, and the other way round.

After each message to or from the process of the model, its thread may have to wait so long before it goes on.
"""
_SECONDS_TO_ANSWER = 10
"""Seconds that a request may still take after its deadline, once the service ends."""


def serve(
    arguments: ServeArguments,
    say: Callable[[str], None],
    url: Callable[[str], None],
    words: Callable[[str], str] = str,
) -> None:
    """Answer requests until SIGTERM or Ctrl-C; what was accepted before is answered.

    Args:
        arguments: What to serve, where, and within which bounds.
        say: Called with sentences to read before trusting the model.
        url: Called with the address when the service is ready.
        words: Renders sentences of the library for whoever runs the service.

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
    with (
        bound(arguments.host, arguments.port) as listening,
        ModelProcess(arguments.data, arguments.device, arguments.output) as process,
    ):
        state = state_of(run)  # before the load, so that no model that is published meanwhile is missed
        try:
            remote = process.load(run)
        except FailedError as failed:
            raise SystemExit(f"widenet: {run}: its model cannot be loaded: {failed}") from None
        for sentence in remote.caveats:
            say(sentence)
        if arguments.max_bytes is None:
            widest = max((field.width for field in remote.about.fields if field.kind == "dense"), default=0)
            guard = replace(guard, max_bytes=_BYTES + widest * _BYTES_A_NUMBER)
        rhythm = Rhythm(
            arguments.max_batch,
            arguments.max_delay_ms / 1000,
            arguments.queue,
            arguments.max_wait_ms / 1000,
            arguments.deadline_ms / 1000,
        )
        model = ModelThread(remote, rhythm, Measurements())
        bounds = Bounds(arguments.max_items, arguments.max_k, min(arguments.queue, arguments.max_batch))
        runs = None if arguments.runs is None else Path(arguments.runs)
        follower = Follower(run, state, model, process.load, words)
        service = Service(model, follower, guard, bounds, runs)
        seconds_to_end = int(rhythm.deadline_seconds) + _SECONDS_TO_ANSWER
        connection = direct(service.asking, guard)
        config = configuration(service.app(), "on", seconds_to_end, connection)
        # Walking through all that was imported would hold up all requests.
        gc.collect()
        gc.freeze()
        sys.setswitchinterval(_SECONDS_IN_TURN)
        listen(listening)
        url(address_of(listening))
        server = _Server(config, service, process)
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal again after the last answer
            server.run(sockets=[listening])
        if server.died is not None:
            raise SystemExit(f"widenet: the service ended because the {server.died}.")


class _Server(uvicorn.Server):
    """uvicorn's server, which ends if the model's thread or process does, and then waits for no load.

    Attributes:
        died: Which of the two has died, and how.
    """

    def __init__(self, config: uvicorn.Config, service: Service, process: ModelProcess) -> None:
        super().__init__(config)
        self._service, self._process = service, process
        self.died: str | None = None

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; called ten times a second."""
        if self._process.has_died:
            self.died = f"process of its model died: {self._process.end}"
        elif self._service.model.has_died:
            self.died = "thread of its model died"
        return self.died is not None or await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was accepted."""
        self._service.loads.end()
        await super().shutdown(sockets)
