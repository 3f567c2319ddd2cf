"""Messages between a service and the process of its model: nothing is lost or changed on the way."""

import socket
from threading import Thread

import msgspec
import pytest

from widenet.errors import CheckpointError
from widenet.serve.calls import (
    Answered,
    Batch,
    Call,
    Channel,
    Failed,
    FailedError,
    Refused,
    Reply,
    is_of_system,
)
from widenet.serve.messages import Answer, Explain, Recommend, RecommendMany, RefusedError, Score, Similar

ASKS = [
    Similar(item="a", k=3),
    RecommendMany(items=["b", "é\0"], values=[0.1, 1e300], only=["c"]),
    Explain(user="d", item="e"),
    Recommend(user="f", at_most={"genre": 10**30}, where={"price": [2**64, -0.5, True]}, part="heldout"),
    Score(fields={"profile": [1.0, "x"]}, candidates=["g"]),
]


def test_requests_of_all_kinds_arrive_in_order_with_numbers_of_any_size():
    call = msgspec.json.decode(msgspec.json.encode(Batch.of(ASKS)), type=Call)
    found = call.asks()
    assert found[1] == Recommend(items=["b", "é\0"], values=[0.1, 1e300], only=["c"])
    assert [*found[:1], *found[2:]] == [*ASKS[:1], *ASKS[2:]]


def test_answers_are_the_bytes_of_their_json_and_refusals_keep_all():
    answer = Answer("fingerprint", [], ["x"])
    refused = RefusedError(422, "unknown_item", "no item has the id 'x'.", {"Retry-After": "1"})
    sent = msgspec.msgpack.encode(Answered.of([answer, refused]))
    first, second = msgspec.msgpack.decode(sent, type=Reply).results
    assert first == msgspec.json.encode(answer)
    again = second.error()
    assert (again.status, again.mistake, again.headers) == (422, refused.mistake, refused.headers)
    assert isinstance(second, Refused)


def test_an_error_of_the_system_keeps_its_file_and_memory_that_is_short_is_told_as_such():
    missing = FileNotFoundError(2, "No such file or directory", "/a/run")
    short = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    packets = [msgspec.msgpack.encode(Failed.of(each)) for each in (missing, short)]
    system, memory = (msgspec.msgpack.decode(packet, type=Reply).error() for packet in packets)
    assert (type(system), system.errno, system.filename) == (FileNotFoundError, 2, "/a/run")
    assert system.strerror == "No such file or directory"
    assert isinstance(memory, MemoryError)


@pytest.mark.parametrize("by_system", [False, True])
def test_plain_errors_stay_themselves_and_others_name_their_class(by_system):
    plain = CheckpointError("run is damaged."), MemoryError("10 GB"), PermissionError("run")
    sent = *plain, KeyError("a")
    for each in sent:
        each.__context__ = OSError("a disk") if by_system else None
    packets = [msgspec.msgpack.encode(Failed.of(each)) for each in sent]
    errors = [msgspec.msgpack.decode(packet, type=Reply).error() for packet in packets]
    assert [*map(repr, errors[:3])] == [*map(repr, plain)]
    assert (type(errors[3]), str(errors[3])) == (FailedError, "KeyError: 'a'")
    assert [*map(is_of_system, errors)] == [by_system, by_system, True, by_system]


def test_messages_of_any_size_arrive_whole_until_the_other_end_is_closed():
    own, other = socket.socketpair()
    messages = [b"", b"a", b"b" * 3_000_000, b"c"]

    def send():
        for message in messages:
            Channel(own).send(message)
        own.close()

    sender = Thread(target=send)
    sender.start()
    channel = Channel(other)
    assert [channel.receive() for _ in messages] == messages
    with pytest.raises(EOFError):
        channel.receive()
    sender.join()
    with pytest.raises(OSError, match="pipe"):
        channel.send(b"d")
    other.close()
