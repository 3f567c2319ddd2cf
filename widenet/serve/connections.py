"""Connections whose requests must begin in time, and that turn requests away while too many wait.

A client that sends a letter a minute holds no connection open.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_SECONDS_TO_BEGIN = 10.0
"""From the connection, or the first byte of a further request, to the end of its headers.

Of a request that is turned away, from there to the end of its body as well.
"""


@dataclass(frozen=True)
class TurningAway:
    """Requests that get 503 unread, while there is no room for them.

    Beyond the capacity most requests are such. If each took a task, a body and a decoder, the event loop
    would come late to those that were accepted.

    Attributes:
        numbers: By the path of such requests, what counts one.
        is_due: Whether they are turned away now.
        headers: Further headers of the answer.
        body: Its body, JSON.
    """

    numbers: Mapping[bytes, Callable[[], None]]
    is_due: Callable[[], bool]
    headers: Mapping[str, str]
    body: bytes

    def answer(self, more: list[tuple[bytes, bytes]]) -> bytes:
        """Return the answer with some more headers."""
        own = {"content-type": "application/json", "content-length": str(len(self.body)), **self.headers}
        lines = [*more, *((name.lower().encode(), value.encode()) for name, value in own.items())]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        return b"HTTP/1.1 503 Service Unavailable\r\n" + head + b"\r\n" + self.body


class PatientConnection(HttpToolsProtocol):
    """uvicorn's connection, closed if the headers of a request do not come to an end."""

    turning_away: TurningAway | None = None
    _limit: asyncio.TimerHandle | None = None
    _is_turned_away = False

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Begin to wait for the end of the headers, unless a request is being answered."""
        if self._limit is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Stop waiting; answer the request at once if it is turned away."""
        self._stop()
        if self._turn_away():
            self._is_turned_away = True
            self._wait()
        else:
            self._unset_keepalive_if_required()  # of a request turned away in the same packet
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Drop the body of a request that is turned away."""
        if not self._is_turned_away:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait for the next request, as long as uvicorn does."""
        if self._is_turned_away:
            self._is_turned_away = False
            self._stop()
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            super().on_message_complete()

    def _turn_away(self) -> bool:
        """Answer a request if it is turned away; not one behind an unanswered one, or of a rare kind."""
        if self.turning_away is None or not self.turning_away.is_due():
            return False
        count = self.turning_away.numbers.get(self.url)
        is_rare = self.expect_100_continue or self.flow.write_paused or not self.parser.should_keep_alive()
        is_behind = self.cycle is not None and not self.cycle.response_complete
        if count is None or is_rare or is_behind or self.parser.get_method() != b"POST":
            return False
        count()
        self.transport.write(self.turning_away.answer(self.server_state.default_headers))
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._limit = self.loop.call_later(_SECONDS_TO_BEGIN, self.transport.close)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


def turning(away: TurningAway) -> type[PatientConnection]:
    """Return connections that turn requests away."""
    return type("TurningConnection", (PatientConnection,), {"turning_away": away})
