"""Clients that send slowly: their connections end, and others are answered."""

import socket
from contextlib import ExitStack
from pathlib import Path

from tests.serve.conftest import service

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
        while not answer.endswith(b'"unknown":[]}'):
            answer += second.recv(2**16)
        assert answer.startswith(b"HTTP/1.1 200 ")
        second.sendall(HEAD)
        assert read_to_the_end(nothing) == read_to_the_end(half) == read_to_the_end(second) == b""
        assert body.recv(2**16).startswith(b"HTTP/1.1 408 ")
        assert running.recommend(items=["i1"]).status == 200
