"""Clients that send slowly: their connections end, and others are answered."""

import resource
import socket
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.serve.conftest import service

HASTY = Path(__file__).with_name("hasty.py").read_text()
HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
BODY = b'{"items": ["i1"], "k": 1}'


def read_to_the_end(connection):
    received = b""
    while piece := connection.recv(2**16):
        received += piece
    return received


def test_a_request_must_begin_and_arrive_in_time(world):
    with service(world.run("first"), script=HASTY) as running, ExitStack() as stack:
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
            running = stack.enter_context(service(world.run("first"), program=("-m", "widenet")))
        stack.enter_context(open_files(hard))
        number = min(10_000, hard - 500)
        place = "127.0.0.1", running.port
        for _ in range(number):
            stack.enter_context(socket.create_connection(place, timeout=60)).sendall(HEAD)
        assert running.recommend(items=["i1"]).status == 200
        assert len(list(Path(f"/proc/{running.process.pid}/fd").iterdir())) > 1024
