"""The least that a service in Python can do: refuse each packet with the same answer, whatever it holds.

Run it as `python -m benchmarks.fixed_service`; it prints its address. Its times are those of the program that
asks, the loop and the machine.
"""

import asyncio
import sys
from typing import Any

import uvloop

_BODY = b'{"error":{"code":"busy","message":"too many requests wait. Try again later."}}'
_ANSWER = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)


class _Connection(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, _: bytes) -> None:
        self._transport.write(_ANSWER)


async def main() -> None:
    """Answer until SIGTERM."""
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0, backlog=2048)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
