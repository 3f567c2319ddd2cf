"""Asks a service at moments that do not depend on its answers: gaps are random, as those of many people.

Run it as `python -m benchmarks.open_load PORT RATE SECONDS CONNECTIONS BODIES`. It prints, as JSON, the
milliseconds of the answers by status, from the moment at which a request was due.
"""

import asyncio
import gc
import json
import sys
from collections import deque
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import uvloop

_HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
_LENGTH, _END = b"content-length: ", b"\r\n\r\n"
_SECONDS_BETWEEN_LOOKS = 0.001
_SECONDS_FOR_THE_LAST = 5.0


class _Load:
    def __init__(self, packets: list[bytes], due: np.ndarray) -> None:
        self.packets, self.due = packets, deque(due.tolist())
        self.free: deque[_Connection] = deque()
        self.late: dict[int, list[float]] = {}
        self.number = self.broken = 0

    def send(self, now: float) -> None:
        """Send what is due by now, as long as there are free connections."""
        while self.free and self.due and self.due[0] <= now:
            self.number += 1
            self.free.popleft().ask(self.packets[self.number % len(self.packets)], self.due.popleft())


class _Connection(asyncio.Protocol):
    def __init__(self, load: _Load) -> None:
        self._load, self._due, self._received = load, 0.0, b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._load.free.append(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._load.broken += 1

    def ask(self, packet: bytes, due: float) -> None:
        self._due, self._received = due, b""
        self._transport.write(packet)

    def data_received(self, data: bytes) -> None:
        self._received = received = self._received + data
        end = received.find(_END)
        if end < 0:
            return
        start = received.index(_LENGTH) + len(_LENGTH)
        if len(received) == end + len(_END) + int(received[start : received.index(b"\r", start)]):
            self._load.late.setdefault(int(received[9:12]), []).append(perf_counter() - self._due)
            self._load.free.append(self)


async def _run(port: int, rate: float, seconds: float, connections: int, bodies: list[bytes]) -> None:
    packets = [_HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies]
    gaps = np.random.default_rng(0).exponential(1 / rate, int(rate * seconds))
    load, loop = _Load(packets, np.cumsum(gaps)), asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: _Connection(load), "127.0.0.1", port)
    number, began = len(load.due), perf_counter()
    load.due = deque((np.array(load.due) + began).tolist())
    gc.freeze()
    gc.disable()
    while load.due:
        load.send(perf_counter())
        await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
    while (
        len(load.free) + load.broken < connections
        and perf_counter() < began + seconds + _SECONDS_FOR_THE_LAST
    ):
        await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
    answered = sum(map(len, load.late.values()))
    late = {status: [round(1000 * each, 3) for each in own] for status, own in load.late.items()}
    print(json.dumps({"seconds": perf_counter() - began, "unanswered": number - answered, "late": late}))


if __name__ == "__main__":
    port, rate, seconds, connections = map(int, sys.argv[1:5])
    asked = Path(sys.argv[5]).read_bytes().split(b"\n")[:-1]
    uvloop.run(_run(port, rate, seconds, connections, asked))
