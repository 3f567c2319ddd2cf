"""Connections that answer requests for the model: order, refusals, clients that send little or leave."""

import asyncio
import re

import msgspec
import pytest
import uvicorn
from uvicorn.server import ServerState

from widenet.serve import connections
from widenet.serve.asking import Asking
from widenet.serve.direct import direct
from widenet.serve.guard import Guard
from widenet.serve.measurements import Measurements
from widenet.serve.messages import Answer, Bounds

HEAD = b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
OTHER = b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(item, more=b""):
    body = b'{"item": "%s"}' % item
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Model:
    """A model that answers when it is let go, or at once."""

    def __init__(self, at_once=True, is_full=lambda: False):
        self.at_once, self._is_full, self.measured, self.left = at_once, is_full, Measurements(), []

    def admits(self):
        return not self._is_full()

    def offer(self, asks, done):
        answers = [Answer(ask.item, []) for ask in asks]
        if self.at_once:
            done(answers)
        else:
            self.left.append(lambda: done(answers))

    def go(self):
        left, self.left = self.left, []
        for answer in left:
            answer()


async def application(scope, receive, send):
    """Answers with the path and the body."""
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    text = scope["path"].encode() + b" " + body
    headers = [(b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def talk(model, packets, steps=None):
    """Send packets to a connection, waiting for an answer before each further one; gives all that it sends.

    `steps` may do more with the connection and a writer, before the end is waited for.
    """
    made = []

    async def talking():
        kind = direct(Asking(model, Bounds(10, 10, 10)), Guard(None, frozenset(), 1000))
        config = uvicorn.Config(
            application, http=kind, loop="asyncio", lifespan="off", log_config=None, timeout_keep_alive=0.2
        )
        config.load()

        def connection():
            made.append(kind(config=config, server_state=ServerState(), app_state={}))
            return made[-1]

        server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = b""
        for packet in packets:
            writer.write(packet)
            received += await asyncio.wait_for(reader.read(2**16), 30)
        if steps is not None:
            await steps(made[0], writer)
        received += await asyncio.wait_for(reader.read(), 30)
        writer.close()
        server.close()
        return received

    return asyncio.run(talking())


def answered(received):
    """What was answered: the model's items, and the paths of what the application got."""
    return [item or path for item, path in re.findall(rb'"fingerprint":"(.)"|\r\n\r\n(/\S+) ', received)]


def statuses(received):
    return [int(found) for found in re.findall(rb"HTTP/1.1 (\d+) ", received)]


def test_an_answer_is_the_models_and_the_connection_stays_open():
    model = Model()
    received = talk(model, [post(b"a"), post(b"b")])
    assert re.findall(rb'"fingerprint":"(.)"', received) == [b"a", b"b"]
    assert received.count(b"content-type: application/json") == 2
    assert b"connection: close" not in received
    counted = 'widenet_requests_total{route="/v1/similar",status="200"} 2.0'
    assert counted in model.measured.text().decode()


def test_the_body_may_come_in_pieces_and_many_requests_in_one_packet():
    head, body = post(b"a").split(b"\r\n\r\n")

    async def in_pieces(_, writer):
        for byte in [head + b"\r\n\r\n", body[:3], body[3:] + post(b"b") + OTHER + post(b"c")]:
            writer.write(byte)
            await asyncio.sleep(0)

    assert answered(talk(Model(), [], in_pieces)) == [b"a", b"b", b"/other", b"/v1/similar"]


def test_answers_come_in_the_order_of_their_requests():
    model = Model(at_once=False)

    async def later(connection, writer):
        writer.write(post(b"a") + OTHER + post(b"b"))
        while not model.left:
            await asyncio.sleep(0)
        assert not connection.cycle.response_complete
        model.go()

    assert answered(talk(model, [], later)) == [b"a", b"/other", b"/v1/similar"]


def test_a_client_that_waits_for_leave_to_send_its_body_gets_it():
    head, body = post(b"a", b"Expect: 100-continue\r\n").split(b"\r\n\r\n")
    received = talk(Model(), [head + b"\r\n\r\n", body])
    assert statuses(received) == [100, 200]


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_a_connection_that_is_not_kept_is_closed_after_the_answer(version):
    asked = post(b"a", b"Connection: close\r\n").replace(b"HTTP/1.1", version)
    received = talk(Model(), [asked])
    assert statuses(received) == [200]
    assert b"\r\nconnection: close\r\n" in received
    assert received.endswith(b"}")


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (post(b"a").replace(b"localhost", b"evil.example"), 421, "wrong_host"),
        (post(b"a").replace(b"application/json", b"text/plain"), 415, "wrong_type"),
        (HEAD + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001, 413, "too_large"),
        (CHUNKED + b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n", 413, "too_large"),
        (HEAD + b"Content-Length: 1\r\n\r\n{", 422, "malformed"),
    ],
)  # fmt: skip
def test_a_wrong_request_gets_one_answer_and_the_next_its_own(request_, status, code):
    received = talk(Model(), [request_ + post(b"a")])
    assert statuses(received) == [status, 200]
    assert f'"code":"{code}"'.encode() in received


@pytest.mark.parametrize("pieces", [1, 2, 3], ids=["whole", "in two packets", "without its end"])
def test_a_request_that_is_refused_unread_leaves_no_connection_open(pieces, monkeypatch):
    monkeypatch.setattr(connections, "_SECONDS_TO_BEGIN", 0.2)
    head, body = post(b"a").split(b"\r\n\r\n")
    head += b"\r\n\r\n"
    packets = {1: [head + body], 2: [head, body], 3: [head, body[:5]]}[pieces]

    received = talk(Model(is_full=lambda: True), packets)
    assert statuses(received) == [503]
    assert received.endswith(b"}}")
    assert b"\r\nretry-after: 1\r\n" in received


def test_a_request_behind_one_that_is_refused_has_its_own_time():
    turns = iter([True, False])
    model, timers = Model(at_once=False, is_full=lambda: next(turns)), []

    async def later(connection, writer):
        writer.write(post(b"a") + post(b"b"))
        while not model.left:
            await asyncio.sleep(0)
        timers.extend([connection.timeout_keep_alive_task, connection._limit])
        model.go()

    assert statuses(talk(model, [], later)) == [503, 200]
    assert timers == [None, None]


def test_a_body_that_does_not_come_is_refused_and_ends_the_connection(monkeypatch):
    monkeypatch.setattr(connections, "_SECONDS_TO_BEGIN", 0.2)
    received = talk(Model(), [post(b"a")[:-3]])
    assert statuses(received) == [408]
    assert b"\r\nconnection: close\r\n" in received


def test_a_body_has_its_own_time_after_the_headers():
    timers = []

    async def slowly(connection, writer):
        head, body = post(b"a").split(b"\r\n\r\n")
        timers.append(connection._limit)
        writer.write(head + b"\r\n\r\n")
        while connection._post is None:
            await asyncio.sleep(0)
        timers.append(connection._limit)
        writer.write(body)

    assert statuses(talk(Model(), [], slowly)) == [200]
    of_headers, of_body = timers
    assert of_headers.cancelled()
    assert of_body.when() > of_headers.when()


def test_an_answer_to_a_client_that_has_left_is_dropped():
    model = Model(at_once=False)

    async def leave(connection, writer):
        writer.write(post(b"a"))
        while not model.left:
            await asyncio.sleep(0)
        writer.transport.abort()
        while connection in connection.connections:
            await asyncio.sleep(0)
        model.go()
        assert connection.cycle.response_complete

    assert talk(model, [], leave) == b""


def test_the_end_of_a_service_waits_for_an_answer_and_closes_the_connection():
    model = Model(at_once=False)

    async def end(connection, writer):
        writer.write(post(b"a"))
        while not model.left:
            await asyncio.sleep(0)
        connection.shutdown()
        model.go()

    received = talk(model, [], end)
    assert statuses(received) == [200]
    assert b"\r\nconnection: close\r\n" in received
    assert msgspec.json.decode(received.split(b"\r\n\r\n")[1])["fingerprint"] == "a"
