"""Heads of requests that came before: a request with one of them needs no parser.

Programs ask again and again with the same head. What the parser and the guard say of it depends on its bytes
alone, so it is kept for them.
"""

from collections.abc import Sequence

_MOST, _LONGEST = 1024, 2048
_BEGIN, _END = b"POST ", b"\r\n\r\n"
_OF_BODIES = b"content-length", b"transfer-encoding"


class KnownHeads:
    """The heads of requests for the model that the guard has let pass, on connections that stay open."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, int]] = {}

    def learn(self, packet: bytes, route: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep the head of a request.

        Args:
            packet: The bytes that it is at the beginning of, perhaps not whole.
            route: Its route.
            headers: Its headers.
        """
        head = packet[: packet.find(_END) + len(_END)]
        lengths = [value for name, value in headers if name in _OF_BODIES]
        # Some parsers also end lines, and so heads, without a carriage return.
        is_plain = head.startswith(_BEGIN) and head.count(b"\n") == head.count(b"\r\n")
        if is_plain and len(head) <= _LONGEST and len(lengths) == 1 and lengths[0].isdigit():
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[head] = route, int(lengths[0])

    def request(self, packet: bytes) -> tuple[str, bytes] | None:
        """Return the route and the body of a packet that is one whole request with a known head."""
        start = packet.find(_END) + len(_END)
        route, length = self._known.get(packet[:start], ("", -1))
        return (route, packet[start:]) if len(packet) == start + length else None
