"""The port of a service, bound before anything large is read, and how uvicorn answers at it."""

import errno
import resource
import socket
from contextlib import suppress
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from widenet.errors import OptionError
from widenet.serve.connections import PatientConnection

BACKLOG = 2048
"""Connections that may wait to be accepted."""
_SECONDS_KEPT_ALIVE = 60
"""Seconds that a connection may wait for its next request."""


def bound(host: str, port: int) -> socket.socket:
    """Bind a port, 0 for a free one; raises OptionError."""
    _take_all_descriptors()
    place = f"port {port} of {host}"
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, number)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
            # Until it listens, Linux would let another program with the option bind the port, too.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise _in_use(place) from None
        raise OptionError(
            f"{place} cannot be used: {error.strerror or error}. Choose another `host` or `port`."
        ) from None
    return listening


def listen(listening: socket.socket) -> None:
    """Accept connections at a bound port; raises OptionError if another program does."""
    # Connections that linger after the end must not hold up the next start.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    host, port = listening.getsockname()[:2]
    try:
        listening.listen(BACKLOG)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise _in_use(f"port {port} of {host}") from None


def _in_use(place: str) -> OptionError:
    return OptionError(
        f"{place} is in use. End the other program, or choose another `port`; 0 takes a free one."
    )


def _take_all_descriptors() -> None:
    """Let as many connections be open as the system allows: shells often start programs with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS names no limit, and allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def address_of(listening: socket.socket) -> str:
    """Return the URL of a bound port."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def configuration(
    app: ASGIApp,
    lifespan: Literal["on", "off"],
    seconds_to_end: int,
    connection: type[PatientConnection] = PatientConnection,
) -> uvicorn.Config:
    """Return uvicorn's settings for an application.

    Args:
        app: The application.
        lifespan: Whether the application acts at start and end.
        seconds_to_end: Seconds that accepted requests have to be answered after SIGTERM.
        connection: What reads requests.
    """
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=connection,
        ws="none",
        lifespan=lifespan,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=_SECONDS_KEPT_ALIVE,
        timeout_graceful_shutdown=seconds_to_end,
    )
