"""Connections whose requests must begin in time: a client that sends a letter a minute holds none open."""

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from widenet.serve.messages import Mistake, Refusal

_SECONDS_TO_BEGIN = 10.0
"""From the connection, or the first byte of a further request, to the end of its headers.

A body that the connection reads by itself has as long again, from the end of its headers.
"""

_NO_HTTP = (
    "this is no valid HTTP request. Encode letters of an address that ASCII lacks, such as %C3%B6 for \u00f6."
)


class PatientConnection(HttpToolsProtocol):
    """uvicorn's connection, closed if the headers of a request do not come to an end."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Begin to wait for the rest if that was a part of a request."""
        super().data_received(data)
        if self._limit is None and self._is_awaited():
            self._wait()

    def on_headers_complete(self) -> None:
        """Stop waiting."""
        self._stop()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, such as an address with other letters than those of ASCII."""
        del msg
        body = msgspec.json.encode(Refusal(Mistake("malformed", _NO_HTTP)))
        head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[400] + head.encode() + body)
        self.transport.close()

    def _is_awaited(self) -> bool:
        """Return whether nothing else ends the connection if no more comes."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return is_answered and self.timeout_keep_alive_task is None

    def _wait(self) -> None:
        self._limit = self.loop.call_later(_SECONDS_TO_BEGIN, self._end)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end(self) -> None:
        """End a connection whose request does not come to an end."""
        self.transport.close()
