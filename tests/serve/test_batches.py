"""The thread of the model: batches of what has arrived, a bounded queue, deadlines, swaps and the end."""

import asyncio
from threading import Event

import pytest

from widenet.serve.batches import Measurements, ModelThread
from widenet.serve.requests import Answer, RefusedError, Similar
from widenet.serve.serve_arguments import ServeArguments


class Stopped:
    """A model that waits in every batch until it is let go; its answers name the items that they are for."""

    def __init__(self, fingerprint="first", broken=()):
        self.fingerprint, self.broken = fingerprint, broken
        self.entered, self.go, self.batches = Event(), Event(), []

    def answers(self, asks):
        self.entered.set()
        self.go.wait()
        self.batches.append([ask.item for ask in asks])
        if set(self.broken) & set(self.batches[-1]):
            raise ValueError("a fault")
        return [Answer(f"{self.fingerprint} {ask.item}", []) for ask in asks]


async def offer(thread, *items):
    """Ask for the items together; gives the task of what each one gets, once it waits or is refused."""
    task = asyncio.create_task(thread.answers([Similar(item=str(item)) for item in items]))
    await asyncio.sleep(0)
    if task.done():
        task.result()
    return task


async def refusal(thread, *items):
    with pytest.raises(RefusedError) as refused:
        await (await offer(thread, *items))
    return refused.value.http_status, refused.value.code


def names(results):
    return [answer.fingerprint for answers in results for answer in answers]


def run(engine, steps, **rhythm):
    """Run the steps of a test with a thread of a model, and end it; the model is in a batch of "a"."""

    async def all_steps():
        times = {"max_wait_ms": 60_000, "deadline_ms": 60_000}
        chosen = {"max_batch": 3, "max_delay_ms": 0, "queue": 5, **times, **rhythm}
        thread = ModelThread(engine, ServeArguments("run", **chosen), Measurements())
        thread.start()
        try:
            first = await offer(thread, "a")
            await asyncio.to_thread(engine.entered.wait)
            await steps(thread, first)
        finally:
            engine.go.set()
            await asyncio.to_thread(thread.close)

    asyncio.run(all_steps())
    return engine.batches


def test_what_arrives_while_the_model_computes_is_the_next_batch():
    engine = Stopped()

    async def steps(thread, first):
        others = [await offer(thread, 1, 2), await offer(thread, 3, 4)]
        engine.go.set()
        found = await asyncio.gather(first, *others)
        assert names(found) == [f"first {item}" for item in "a1234"]

    assert run(engine, steps) == [["a"], ["1", "2", "3"], ["4"]]


def test_a_batch_waits_for_those_who_were_just_answered():
    engine = Stopped()

    async def steps(thread, first):
        second = await offer(thread, 1)
        engine.go.set()
        await first
        await asyncio.gather(second, await offer(thread, 2))

    assert run(engine, steps, max_delay_ms=60_000) == [["a"], ["1", "2"]]


def test_who_asks_alone_waits_for_nobody():
    engine = Stopped()

    async def steps(thread, first):
        engine.go.set()
        await first
        for item in range(3):
            await (await offer(thread, item))

    assert run(engine, steps, max_delay_ms=60_000) == [["a"], ["0"], ["1"], ["2"]]


def test_a_full_queue_refuses_at_once_and_takes_all_or_none():
    engine = Stopped()

    async def steps(thread, _):
        waiting = [await offer(thread, 1, 2, 3, 4)]
        assert await refusal(thread, 5, 6) == (503, "busy")
        waiting.append(await offer(thread, 7))
        with pytest.raises(RefusedError) as refused:
            await offer(thread, 8)
        assert refused.value.headers == {"Retry-After": "1"}
        engine.go.set()
        assert names(await asyncio.gather(*waiting)) == [f"first {item}" for item in "12347"]

    assert run(engine, steps) == [["a"], ["1", "2", "3"], ["4", "7"]]


def test_no_more_rows_wait_than_the_model_answers_in_time(monkeypatch):
    engine, now = Stopped(), [0.0]
    monkeypatch.setattr("widenet.serve.batches.monotonic", lambda: now[0])

    async def steps(thread, first):
        now[0] = 0.5  # for a batch of one row
        engine.go.set()
        await first
        engine.go.clear()
        engine.entered.clear()
        await offer(thread, "b")
        await asyncio.to_thread(engine.entered.wait)
        waiting = [await offer(thread, row) for row in range(6)]
        assert await refusal(thread, 7) == (503, "busy")
        engine.go.set()
        assert len(await asyncio.gather(*waiting)) == 6

    run(engine, steps, max_wait_ms=1000, queue=100)


def test_a_row_that_fails_takes_no_other_with_it_and_the_log_has_nothing_of_it(capsys):
    engine = Stopped(broken="2")

    async def steps(thread, first):
        others = await offer(thread, 1, 2, 3)
        engine.go.set()
        await first
        one, two, three = await others
        assert names([[one, three]]) == ["first 1", "first 3"]
        assert (two.http_status, two.code) == (500, "failed")

    run(engine, steps)
    said = capsys.readouterr().err
    assert said.count("ValueError.\n") == 1
    assert "in answers" in said
    assert "a fault" not in said.replace('ValueError("a fault")', "")
