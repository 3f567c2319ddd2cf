"""Connections that answer requests for the model by themselves: no task and no application between.

A request joins the queue when its last byte is read, and its answer is written when the model has it.
A whole request whose head came before is not even parsed.
While the queue is full, requests that may ask are refused before their bodies are read. Every step of an
application would have to wait in the event loop until it has read what all other connections have sent.
"""

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any, cast

from starlette.datastructures import Headers
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from widenet.serve.asking import BUSY, ROUTES, Asking, Reply
from widenet.serve.batches import failed, tell
from widenet.serve.connections import PatientConnection
from widenet.serve.guard import Guard
from widenet.serve.known_heads import KnownHeads
from widenet.serve.messages import RefusedError

_ROUTES = {route.encode(): route for route in ROUTES}


class _Post:
    """A request for the model, with the attributes of uvicorn's cycles that a connection reads and sets.

    Attributes:
        route: Its route.
        first: The bytes that begin with the request, if its head may be kept.
        keep_alive: Whether the connection stays open after the answer.
        body: As much of its body as has arrived and matters.
        is_whole: Whether its end has arrived.
        response_complete: Whether it has been answered.
        disconnected: Whether nobody reads the answer.
    """

    message_event = asyncio.Event()  # nobody waits for it

    def __init__(self, connection: "DirectConnection", route: str, keep_alive: bool) -> None:
        self._connection, self._began = connection, monotonic()
        self.route, self.keep_alive, self.body = route, keep_alive, bytearray()
        self.first: bytes | None = None
        self.is_whole = self.response_complete = self.disconnected = False

    def answer(self, reply: Reply) -> None:
        """Write the answer."""
        self.response_complete = True
        connection = self._connection
        connection.asking.model.measured.note(self.route, reply.status, monotonic() - self._began)
        if connection.transport.is_closing():
            return
        connection.transport.write(_packet(reply, connection.server_state.default_headers, self.keep_alive))
        if not self.keep_alive:
            connection.transport.close()
        elif self.is_whole:
            connection.on_response_complete()

    def refuse(self, refused: RefusedError) -> None:
        """Write a refusal."""
        self.answer(Reply.refusing(refused))


class DirectConnection(PatientConnection):
    """A connection of a service with a model; see `direct`.

    Attributes:
        asking: Asks the model.
        guard: Who may ask.
        heads: Heads that came before, on any connection.
    """

    asking: Asking
    guard: Guard
    heads: KnownHeads
    _post: _Post | None = None
    """The request for the model whose body arrives."""
    _is_inside = False
    """Whether the parser is inside a request."""
    _first: bytes | None = None
    """The bytes that begin with the request that the parser reads first of them."""

    def data_received(self, data: bytes) -> None:
        """Answer a whole request with a known head; let the parser read others."""
        is_answered = self.cycle is None or self.cycle.response_complete
        is_first = is_answered and not self._is_inside
        known = self.heads.request(data) if is_first and not self.flow.write_paused else None
        if known is None:
            self._first = data if is_first else None
            super().data_received(data)
            return
        route, body = known
        self._unset_keepalive_if_required()
        self._stop()
        post = _Post(self, route, keep_alive=True)
        post.is_whole = True
        self.cycle = cast(Any, post)
        if self.asking.model.admits():
            self.asking.ask(route, body, post.answer)
        else:
            post.answer(BUSY)

    def on_message_begin(self) -> None:
        """Note that a request begins."""
        self._is_inside = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Refuse a request for the model at once if it may not be read; leave others to the application."""
        first, self._first = self._first, None
        route = _ROUTES.get(self.url)
        self._unset_keepalive_if_required()  # of a request that was answered in the same packet
        if route is None or not self._is_usual():
            super().on_headers_complete()
            return
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        self._stop()  # a body that is not in this packet has a time of its own
        self._post = post = _Post(self, route, keep_alive)
        self.cycle = cast(Any, post)
        if (refused := self._refusal()) is not None:
            post.refuse(refused)
            return
        post.first = first if keep_alive else None
        if not self.asking.model.admits():
            post.answer(BUSY)

    def _refusal(self) -> RefusedError | None:
        """Return why the request behind the headers must not be read, if so."""
        headers = Headers(raw=self.headers)
        try:
            self.guard.check(headers, is_open=False)
            self.guard.check_body(headers)
        except RefusedError as refused:
            return refused
        except Exception as error:  # the parser would call it a mistake of the client
            tell("a request failed", error)
            return failed()
        return None

    def _is_usual(self) -> bool:
        """Return whether the request behind the headers can be answered directly."""
        is_behind = self.cycle is not None and not self.cycle.response_complete
        is_rare = self.expect_100_continue or self.flow.write_paused or self.parser.should_upgrade()
        return self.parser.get_method() == b"POST" and not is_behind and not is_rare

    def on_body(self, body: bytes) -> None:
        """Keep a piece of a body, unless its request has been refused."""
        post = self._post
        if post is None:
            super().on_body(body)
        elif not post.response_complete:
            post.body += body
            if len(post.body) > self.guard.max_bytes:
                post.refuse(self.guard.too_large())

    def on_message_complete(self) -> None:
        """Ask the model."""
        self._is_inside = False
        post = self._post
        if post is None:
            super().on_message_complete()
            return
        self._stop()
        self._post, post.is_whole = None, True
        if post.first is not None:
            self.heads.learn(post.first, post.route, self.headers)
        if post.response_complete:
            self.on_response_complete()
        else:
            body, post.body = post.body, bytearray()
            self.asking.ask(post.route, body, post.answer)

    def _is_awaited(self) -> bool:
        return self._post is not None or super()._is_awaited()

    def _end(self) -> None:
        if self._post is None or self._post.response_complete:
            super()._end()
        else:
            self._post.keep_alive = False
            self._post.refuse(self.guard.too_slow())


def direct(asking: Asking, guard: Guard) -> type[DirectConnection]:
    """Return the connections of a service.

    Args:
        asking: Asks the model.
        guard: Who may ask.
    """
    own = {"asking": asking, "guard": guard, "heads": KnownHeads()}
    return type("OwnConnection", (DirectConnection,), own)


def _packet(reply: Reply, more: Sequence[tuple[bytes, bytes]], keep_alive: bool) -> bytes:
    """Return an answer as it is sent, with some more headers."""
    own = "".join(f"{name.lower()}: {value}\r\n" for name, value in reply.headers.items())
    end = "" if keep_alive else "connection: close\r\n"
    head = f"content-length: {len(reply.body)}\r\ncontent-type: application/json\r\n{own}{end}\r\n"
    lines = [name + b": " + value + b"\r\n" for name, value in more]
    return b"".join([STATUS_LINE[reply.status], *lines, head.encode(), reply.body])
