"""A port, bound before anything large is read, and uvicorn at it."""

import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from starlette.types import ASGIApp

from widenet.errors import OptionError

_BACKLOG = 2048
"""Connections that may wait to be accepted."""
_SECONDS_KEPT_ALIVE = 60
"""Seconds that a connection may wait for its next request."""


def bound(host: str, port: int) -> socket.socket:
    """Bind a port, 0 for a free one; raises OptionError."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, number)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            # Until it listens, Linux would let another program with the option bind the port, too.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        rule = f"{port} of {host} cannot be used: {error.strerror or error}"
        raise OptionError(rule, option="port") from None
    return listening


def address_of(listening: socket.socket) -> str:
    """Return the URL of a bound port."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def answer(
    app: ASGIApp,
    listening: socket.socket,
    seconds_to_end: int,
    ready: Callable[[str], None],
) -> None:
    """Answer requests until SIGTERM or Ctrl-C.

    Args:
        app: The application.
        listening: A bound port.
        seconds_to_end: Seconds that accepted requests have to be answered after the signal.
        ready: Called with the address before the first request is accepted.
    """
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_SECONDS_KEPT_ALIVE,
        timeout_graceful_shutdown=seconds_to_end,
    )
    # Connections that linger after the end must not hold up the next start.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.listen(_BACKLOG)
    ready(address_of(listening))
    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again after the last answer
        uvicorn.Server(config).run(sockets=[listening])
