"""Heads of requests that came before: a request with one of them needs no parser.

Programs ask again and again with the same head. What the parser and the guard say of it depends on its bytes
alone, so it is kept for them.
"""

from collections.abc import Sequence

_MOST, _LONGEST = 1024, 2048
_BEGIN, _END = b"POST ", b"\r\n\r\n"
_LENGTH = b"content-length"
_OF_BODIES = _LENGTH, b"transfer-encoding"


class KnownHeads:
    """Heads of requests for the model that guard and parser let pass, on connections that stay open."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, int]] = {}

    def learn(self, packet: bytes, route: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep the head of a request that the parser has read to its end.

        Args:
            packet: The bytes that begin with the whole request.
            route: Its route.
            headers: Its headers.
        """
        head = packet[: packet.find(_END) + len(_END)]
        of_body = [(name, value) for name, value in headers if name in _OF_BODIES]
        # Some parsers also end lines, and so heads, without a carriage return.
        is_plain = head.startswith(_BEGIN) and head.count(b"\n") == head.count(b"\r\n")
        if not is_plain or len(head) > _LONGEST or len(of_body) != 1:
            return
        [(name, length)] = of_body
        if name == _LENGTH and length.isdigit():
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[head] = route, int(length)

    def request(self, packet: bytes) -> tuple[str, bytes] | None:
        """Return the route and the body of a packet that is one whole request with a known head."""
        head, end, body = packet.partition(_END)
        known = self._known.get(head + end)
        return (known[0], body) if known is not None and len(body) == known[1] else None
