"""Connections that answer requests for the model: order, refusals, clients that send little or leave.

Their time jumps over all waiting, so that no test depends on how fast the machine is.
"""

import asyncio
import re
import selectors
import socket
from contextlib import suppress

import msgspec
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from widenet.serve import asking
from widenet.serve.asking import Asking
from widenet.serve.connections import PatientConnection
from widenet.serve.direct import direct
from widenet.serve.guard import Guard
from widenet.serve.known_heads import KnownHeads
from widenet.serve.measurements import Measurements
from widenet.serve.messages import Answer, Bounds

HEAD = b"POST /v1/similar HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
OPEN = Guard(None, frozenset(), 1000)
OTHER = b"GET /other HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(item, more=b""):
    body = b'{"item": "%s"}' % item
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


class Model:
    """A model that answers when it is let go, or at once."""

    def __init__(self, at_once=True, is_full=lambda: False):
        self.at_once, self._is_full, self.measured, self.left = at_once, is_full, Measurements(), []
        self.came = 0

    def admits(self):
        self.came += 1
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


class Jumping(selectors.DefaultSelector):
    """Selects without waiting: where all wait, the time goes on to the first who waits for it."""

    now = 0.0

    def select(self, timeout=None):
        found = super().select(0)
        if not found:
            assert timeout is not None, "everybody waits for another"
            self.now += timeout
        return found


def loop():
    selector = Jumping()
    made = asyncio.SelectorEventLoop(selector)
    made.time = lambda: selector.now
    return made


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


def talk(model, packets, steps=None, guard=OPEN):
    """Send packets to a connection, waiting for an answer before each further one; gives all that it sends.

    `steps` may do more with the connection and a writer, before the end is waited for.
    """

    async def talking():
        kind = direct(Asking(model, Bounds(10, 10, 10)), guard)
        config = uvicorn.Config(application, http=kind, loop="asyncio", lifespan="off", log_config=None)
        config.load()
        connection = kind(config=config, server_state=ServerState(), app_state={})
        own, other = socket.socketpair()
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, own)
        reader, writer = await asyncio.open_connection(sock=other)
        received = b""
        for packet in packets:
            writer.write(packet)
            received += await asyncio.wait_for(reader.read(2**16), 30)
        if steps is not None:
            await steps(connection, writer)
        received += await asyncio.wait_for(reader.read(), 30)
        writer.close()
        return received

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(talking())


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


def test_a_known_head_is_not_parsed_again_and_gives_the_same_answers():
    model, parsed = Model(is_full=iter([False, False, True, False, False]).__next__), []

    def count(connection):
        parsed.append(connection)
        return HttpToolsProtocol.on_message_begin(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PatientConnection, "on_message_begin", count, raising=False)
        received = talk(model, [post(b"a"), post(b"b"), post(b"c"), post(b"d"), OTHER, post(b"e")])
    assert statuses(received) == [200, 200, 503, 200, 200, 200]
    assert answered(received) == [b"a", b"b", b"d", b"/other", b"e"]
    assert len(parsed) == 2


@pytest.mark.parametrize(
    "before",
    [
        CHUNKED + b"7\r\nPOST /x\r\n0\r\n\r\n",
        HEAD + b"X: y\nContent-Length: 13\r\n\r\n",
        HEAD + b"Transfer-Encoding: 13\r\n\r\n",
        HEAD.replace(b"1.1", b"1.0") + b"Content-Length: 2\r\n\r\n{}",
        b"\r\n\r\n" + post(b"a"),
        OTHER + post(b"a"),
        post(b"a").replace(b"localhost", b"evil.example") + post(b"a"),
        post(b"a", b"X: %s\r\n" % (b"x" * 2048)),
    ],
)
def test_heads_that_others_may_end_elsewhere_and_refused_ones_are_not_kept(before):
    seen = []

    async def look(connection, writer):
        seen.append(connection.heads._known)
        writer.close()

    with suppress(ConnectionError):
        talk(Model(), [before], look)
    assert seen == [{}]


def test_a_body_that_looks_like_a_known_request_is_a_body():
    inner = post(b"a")

    async def in_pieces(_, writer):
        for packet in [post(b"b"), HEAD + b"Content-Length: %d\r\n\r\n" % len(inner), inner]:
            writer.write(packet)
            await asyncio.sleep(1)

    for full in ([False, False], [False, True]):
        received = talk(Model(is_full=iter([*full, False]).__next__), [], in_pieces)
        assert statuses(received) == [200, 503 if full[1] else 422]


def test_bytes_that_are_no_known_request_are_left_to_the_parser():
    heads, whole = KnownHeads(), post(b"a")
    heads.learn(whole, "/v1/similar", [(b"content-length", b"13")])
    assert heads.request(whole) is not None
    others = [whole[:length] for length in range(len(whole))] + [
        b"\r\n",
        b"xy",
        b"\r\n" + whole,
        whole + b"x",
    ]
    assert [other for other in others if heads.request(other) is not None] == []


def test_a_line_break_between_requests_is_no_request():
    async def apart(_, writer):
        for packet in [post(b"a"), b"\r\n", post(b"b")]:
            writer.write(packet)
            await asyncio.sleep(1)

    assert statuses(talk(Model(), [], apart)) == [200, 200]


def test_few_heads_are_kept():
    heads = KnownHeads()
    for number in range(3000):
        heads.learn(post(b"a", b"X: %d\r\n" % number), "/v1/similar", [(b"content-length", b"13")])
    assert 0 < len(heads._known) <= 1024
    assert heads.request(post(b"b", b"X: 2999\r\n")) == ("/v1/similar", b'{"item": "b"}')
    assert heads.request(post(b"b", b"X: 2999\r\n")[:-1]) is None
    assert heads.request(post(b"b", b"X: 1\r\n")) is None


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
def test_a_request_that_is_refused_unread_leaves_no_connection_open(pieces):
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


def test_a_body_that_does_not_come_is_refused_and_ends_the_connection():
    received = talk(Model(), [post(b"a")[:-3]])
    assert statuses(received) == [408]
    assert b"\r\nconnection: close\r\n" in received


@pytest.mark.parametrize(("seconds", "status"), [((9, 0), 200), ((9, 9), 200), ((9, 11), 408)])
def test_headers_and_bodies_have_their_own_time(seconds, status):
    head, body = post(b"a").split(b"\r\n\r\n")

    async def slowly(connection, writer):
        for pause, packet in zip(seconds, [head + b"\r\n\r\n", body], strict=True):
            await asyncio.sleep(pause)
            if not connection.transport.is_closing():
                writer.write(packet)

    assert statuses(talk(Model(), [], slowly)) == [status]


def test_requests_that_may_not_ask_are_refused_whatever_waits_and_do_not_count():
    model = Model(is_full=lambda: True)
    guard = Guard(b"a-token-of-more-than-16-letters", frozenset(), 1000)
    assert statuses(talk(model, [post(b"a") * 3], guard=guard)) == [401] * 3
    assert model.came == 0


@pytest.mark.parametrize("place", ["guard", "bounds", "answer"])
def test_a_fault_of_the_service_is_not_told_as_the_clients(place, monkeypatch, capsys):
    def fault(*_, **__):
        raise TypeError("a fault")

    broken = {
        "guard": (Guard, "check"),
        "bounds": (Bounds, "check"),
        "answer": (asking, "_reply"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*broken[place], fault)
        received = talk(Model(), [post(b"a")])
    assert statuses(received) == [500]
    assert b'"code":"failed"' in received
    said = capsys.readouterr().err
    assert "TypeError" in said
    assert "in fault" in said


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
