"""Clients that send slowly: their connections end, and others are answered."""

import asyncio
import resource
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvicorn
from uvicorn.server import ServerState

from tests.serve.conftest import service
from widenet.serve import connections
from widenet.serve.connections import TurningAway, turning

HASTY = (str(Path(__file__).with_name("hasty.py")),)
HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"items": ["i1"], "k": 1}'


def read_to_the_end(connection):
    received = b""
    while piece := connection.recv(2**16):
        received += piece
    return received


def test_a_request_must_begin_and_arrive_in_time(world):
    with service(world.run("first"), program=HASTY) as running, ExitStack() as stack:
        place = "127.0.0.1", running.port
        slow = [stack.enter_context(socket.create_connection(place, timeout=60)) for _ in range(4)]
        nothing, half, body, second = slow
        half.sendall(HEAD)
        body.sendall(HEAD + b"Content-Length: 25\r\n\r\n" + BODY[:5])
        second.sendall(HEAD + b"Content-Length: 25\r\n\r\n" + BODY)
        answer = b""
        while not answer.endswith(b'"is_personal":true}'):
            answer += second.recv(2**16)
        assert answer.startswith(b"HTTP/1.1 200 ")
        second.sendall(HEAD)
        assert read_to_the_end(nothing) == read_to_the_end(half) == read_to_the_end(second) == b""
        assert body.recv(2**16).startswith(b"HTTP/1.1 408 ")
        assert running.recommend(items=["i1"]).status == 200


@contextmanager
def open_files(soft):
    """A limit that programs inherit which start in the block."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        yield hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_ten_thousand_open_connections_hold_up_nobody(world):
    with ExitStack() as stack:
        with open_files(1024) as hard:
            running = stack.enter_context(service(world.run("first")))
        stack.enter_context(open_files(hard))
        number = min(10_000, hard - 500)
        place = "127.0.0.1", running.port
        for _ in range(number):
            stack.enter_context(socket.create_connection(place, timeout=60)).sendall(HEAD)
        assert running.recommend(items=["i1"]).status == 200
        assert len(list(Path(f"/proc/{running.process.pid}/fd").iterdir())) > 1024


FULL = b'{"error":"full"}'
REQUEST = HEAD + b"Content-Length: 25\r\n\r\n" + BODY


def exchanged(packets, is_due):
    """Send packets to a connection, waiting for an answer before each further one.

    Returns all that it sends until it closes, and its timers while the application answered.
    """
    made, timers = [], []

    async def application(_scope, _receive, send):
        timers.append(made[0].timeout_keep_alive_task)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def talk():
        away = TurningAway({b"/v1/recommend": lambda: None}, is_due, {"Retry-After": "1"}, FULL)
        config = uvicorn.Config(
            application,
            http=turning(away),
            loop="asyncio",
            lifespan="off",
            log_config=None,
            timeout_keep_alive=1,
        )
        config.load()

        def connection():
            made.append(config.http_protocol_class(config=config, server_state=ServerState(), app_state={}))
            return made[-1]

        server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = b""
        for packet in packets:
            writer.write(packet)
            received += await asyncio.wait_for(reader.read(2**16), 30)
        received += await asyncio.wait_for(reader.read(), 30)
        writer.close()
        server.close()
        return received

    return asyncio.run(talk()), timers


@pytest.mark.parametrize("body", [BODY, BODY[:5], b""], ids=["whole", "a part", "none"])
def test_a_request_that_is_turned_away_leaves_no_connection_open(body, monkeypatch):
    monkeypatch.setattr(connections, "_SECONDS_TO_BEGIN", 0.2)
    head = REQUEST.removesuffix(BODY)
    together, _ = exchanged([head + body], lambda: True)
    apart, _ = exchanged([head, body] if body else [head], lambda: True)
    assert together == apart
    assert together.startswith(b"HTTP/1.1 503 ")
    assert together.endswith(FULL)


def test_a_request_behind_one_that_is_turned_away_has_its_own_time():
    turns = iter([True, False])
    received, timers = exchanged([REQUEST + REQUEST], lambda: next(turns))
    assert received.count(b"HTTP/1.1 503 ") == received.count(b"HTTP/1.1 200 ") == 1
    assert timers == [None]
