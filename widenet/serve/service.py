"""Starts a service: refuse what is wrong, bind the port, load the model, answer until SIGTERM."""

import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
import uvicorn

from widenet.data.dataset import Dataset
from widenet.errors import OptionError
from widenet.serve.app import Service
from widenet.serve.arguments import ServeArguments
from widenet.serve.batches import ModelThread, Rhythm
from widenet.serve.connections import PatientConnection
from widenet.serve.engine import Engine
from widenet.serve.following import Follower, state_of
from widenet.serve.guard import Guard, is_loopback, read_token
from widenet.serve.measurements import Measurements
from widenet.serve.messages import Bounds
from widenet.training.existing_run import check_run

_BACKLOG = 2048
_SECONDS_KEPT_ALIVE = 60


def serve(arguments: ServeArguments, say: Callable[[str], None], url: Callable[[str], None]) -> None:
    """Answer requests until SIGTERM or Ctrl-C; what was accepted before is answered.

    Args:
        arguments: What to serve, where, and within which bounds.
        say: Called with sentences to read before trusting the model.
        url: Called with the address when the service is ready.

    Raises:
        WidenetError: The run, the dataset, the token or the port cannot be used.
    """
    run, guard = Path(arguments.run), _guard(arguments)
    check_run(run)
    if arguments.runs is not None and guard.token is None:
        raise OptionError("`runs` needs `token_file`: only requests with a token may load runs.")
    if arguments.runs is not None and not Path(arguments.runs).is_dir():
        raise OptionError(f"`runs` must be a folder of runs; {arguments.runs} is none. Check the path.")
    torch.set_num_threads(1)  # so that no thread that loads changes it beside the one that computes
    with _bound(arguments) as listening:
        dataset = None if arguments.data is None else Dataset.open(arguments.data)
        state = state_of(run)  # before the load, so that no model that is published meanwhile is missed
        engine = Engine.load(run, dataset, arguments.device, arguments.output)
        for sentence in engine.model.caveats():
            say(sentence)
        rhythm = Rhythm(
            arguments.max_batch,
            arguments.max_delay_ms / 1000,
            arguments.queue,
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
        config = uvicorn.Config(
            service.app(),
            loop="uvloop",
            http=PatientConnection,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_SECONDS_KEPT_ALIVE,
            timeout_graceful_shutdown=int(rhythm.deadline_seconds) + 10,
        )
        listening.listen(_BACKLOG)
        host, port = listening.getsockname()[:2]
        url(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
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


def _guard(arguments: ServeArguments) -> Guard:
    if arguments.token_file is None and not is_loopback(arguments.host):
        raise OptionError(
            f"`host` {arguments.host} lets other machines ask: it needs `token_file`. Name a file with a"
            " token, or listen on 127.0.0.1."
        )
    token = None if arguments.token_file is None else read_token(arguments.token_file)
    names = frozenset(name.lower() for name in arguments.allow_host)
    return Guard(token, names, arguments.max_bytes)


def _bound(arguments: ServeArguments) -> socket.socket:
    """Bind the port, before anything large is read; raises OptionError."""
    place = f"port {arguments.port} of {arguments.host}"
    try:
        family, kind, number, _, address = socket.getaddrinfo(
            arguments.host, arguments.port, type=socket.SOCK_STREAM
        )[0]
        listening = socket.socket(family, kind, number)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OptionError(
                f"{place} is in use. End the other program, or choose another `port`; 0 takes a free one."
            ) from None
        raise OptionError(
            f"{place} cannot be used: {error.strerror or error}. Choose another `host` or `port`."
        ) from None
    return listening
