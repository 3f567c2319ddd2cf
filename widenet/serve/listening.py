"""The port of a service: bound before anything large is read."""

import errno
import resource
import socket
from contextlib import suppress

from widenet.errors import OptionError

BACKLOG = 2048
"""Connections that may wait to be accepted."""


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
        except OSError:
            listening.close()
            raise
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OptionError(
                f"{place} is in use. End the other program, or choose another `port`; 0 takes a free one."
            ) from None
        raise OptionError(
            f"{place} cannot be used: {error.strerror or error}. Choose another `host` or `port`."
        ) from None
    return listening


def _take_all_descriptors() -> None:
    """Let as many connections be open as the system allows: shells often start programs with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS names no limit, and allows less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def address_of(listening: socket.socket) -> str:
    """Return the URL of a bound port."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
