"""The thread of the model: batches of what has arrived, a bounded queue, deadlines, swaps and the end."""

import asyncio
from threading import Event

import pytest

from widenet.serve.batches import ModelThread, Rhythm
from widenet.serve.measurements import Measurements
from widenet.serve.messages import Answer, RefusedError, Similar


class Stopped:
    """A model that waits in every batch until it is let go; its answers name the items that they are for."""

    def __init__(self, fingerprint="first", broken=False):
        self.fingerprint, self.broken = fingerprint, broken
        self.entered, self.go, self.batches = Event(), Event(), []

    def answers(self, asks):
        self.entered.set()
        self.go.wait()
        self.batches.append([ask.item for ask in asks])
        if self.broken:
            raise ValueError("a fault")
        return [Answer(f"{self.fingerprint} {ask.item}", []) for ask in asks]


def asks(*items):
    return [Similar(item=str(item)) for item in items]


def offer(thread, asked):
    """Offer requests that came together; gives a future of each one's result."""
    futures = [asyncio.get_running_loop().create_future() for _ in asked]

    def done(results):
        for future, result in zip(futures, results, strict=True):
            future.set_result(result)

    thread.offer(asked, done)
    return [*futures]


TIMES = {"max_wait_seconds": 60, "deadline_seconds": 60}


def run(engine, steps, **rhythm):
    """Run the steps of a test with a thread of a model, and end it."""

    async def all_steps():
        chosen = {"max_batch": 3, "max_delay_seconds": 0, "queue": 5, **TIMES, **rhythm}
        thread = ModelThread(engine, Rhythm(**chosen), Measurements())
        thread.start()
        try:
            await steps(thread)
        finally:
            engine.go.set()
            await asyncio.to_thread(thread.close)

    asyncio.run(all_steps())


async def stopped_in(engine, thread):
    """Send one request, and wait until the model is in its batch."""
    (future,) = offer(thread, asks("a"))
    await asyncio.to_thread(engine.entered.wait)
    return future


def test_what_arrives_while_the_model_computes_is_the_next_batch():
    engine = Stopped()

    async def steps(thread):
        first = await stopped_in(engine, thread)
        others = offer(thread, asks(1, 2)) + offer(thread, asks(3, 4))
        engine.go.set()
        found = await asyncio.gather(first, *others)
        assert [answer.fingerprint for answer in found] == [f"first {item}" for item in "a1234"]
        assert engine.batches == [["a"], ["1", "2", "3"], ["4"]]

    run(engine, steps)


def test_a_batch_waits_for_those_who_were_just_answered():
    engine = Stopped()

    async def steps(thread):
        first = await stopped_in(engine, thread)
        (second,) = offer(thread, asks(1))
        engine.go.set()
        await first
        await asyncio.gather(second, *offer(thread, asks(2)))
        assert engine.batches == [["a"], ["1", "2"]]

    run(engine, steps, max_delay_seconds=3600)


def test_who_asks_alone_waits_for_nobody():
    engine = Stopped()
    engine.go.set()

    async def steps(thread):
        for item in range(3):
            await asyncio.gather(*offer(thread, asks(item)))

    run(engine, steps, max_delay_seconds=3600)
    assert engine.batches == [["0"], ["1"], ["2"]]


def test_rows_wake_only_a_thread_that_waits_for_them(monkeypatch):
    engine, woken = Stopped(), []

    async def steps(thread):
        first = await stopped_in(engine, thread)
        with monkeypatch.context() as patch:
            patch.setattr(thread._changed, "notify", lambda: woken.append(True))
            others = offer(thread, asks(1)) + offer(thread, asks(2))
        assert not woken
        engine.go.set()
        await asyncio.gather(first, *others)

    run(engine, steps)


def test_a_batch_waits_no_longer_than_it_may():
    engine = Stopped()

    async def steps(thread):
        first = await stopped_in(engine, thread)
        (second,) = offer(thread, asks(1))
        engine.go.set()
        await asyncio.gather(first, second)

    run(engine, steps, max_delay_seconds=0.01)
    assert engine.batches == [["a"], ["1"]]


def test_a_full_queue_refuses_at_once_and_takes_all_or_none():
    engine = Stopped()

    async def steps(thread):
        await stopped_in(engine, thread)
        waiting = offer(thread, asks(1, 2, 3, 4))
        with pytest.raises(RefusedError) as refused:
            offer(thread, asks(5, 6))
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        waiting += offer(thread, asks(7))
        with pytest.raises(RefusedError):
            offer(thread, asks(8))
        engine.go.set()
        found = await asyncio.gather(*waiting)
        assert [answer.fingerprint for answer in found] == [f"first {item}" for item in "12347"]

    run(engine, steps)
    assert engine.batches == [["a"], ["1", "2", "3"], ["4", "7"]]


def test_no_more_rows_wait_than_the_model_answers_in_time(monkeypatch):
    engine, now = Stopped(), [0.0]
    monkeypatch.setattr("widenet.serve.batches.monotonic", lambda: now[0])

    async def steps(thread):
        first = await stopped_in(engine, thread)
        (second,) = offer(thread, asks(1))
        now[0] = 0.5  # for a batch of one row
        engine.go.set()
        await asyncio.gather(first, second)
        assert thread.rhythm.rows_in_time(0.5) == 6
        engine.go.clear()
        engine.entered.clear()
        await stopped_in(engine, thread)
        waiting = [offer(thread, asks(row))[0] for row in range(6)]
        assert not thread.admits()
        with pytest.raises(RefusedError, match="too many requests wait"):
            offer(thread, asks(7))
        engine.go.set()
        await asyncio.gather(*waiting)
        assert thread.admits()

    run(engine, steps, max_wait_seconds=1, queue=100)


def test_rows_that_come_early_take_only_places_that_later_ones_leave_free(monkeypatch):
    engine, now = Stopped(), [0.0]
    monkeypatch.setattr("widenet.serve.batches.monotonic", lambda: now[0])

    async def steps(thread):
        first = await stopped_in(engine, thread)
        assert all(thread.admits() for _ in range(100))  # none of them has offered its rows
        offer(thread, asks(*range(6)))
        (second,) = offer(thread, asks(6))
        now[0] = 2.0
        engine.go.set()
        await asyncio.gather(first, second)
        assert thread.rhythm.rows_too_early(8, 2.0) == 2  # 8 rows came in 2 s
        engine.go.clear()
        engine.entered.clear()
        await stopped_in(engine, thread)  # this batch should end 1.28 s from now
        early = offer(thread, asks(2)) + offer(thread, asks(3))
        assert not thread.admits()
        with pytest.raises(RefusedError, match="too many requests wait"):
            offer(thread, asks(4))
        now[0] += 1.0
        assert thread.admits()
        late = offer(thread, asks(5))
        engine.go.set()
        assert len(await asyncio.gather(*early, *late)) == 3

    run(engine, steps, max_wait_seconds=1, max_batch=6, queue=100)


def test_while_twice_as_many_rows_come_as_fit_none_comes_early(monkeypatch):
    engine, now = Stopped(), [0.0]
    monkeypatch.setattr("widenet.serve.batches.monotonic", lambda: now[0])

    async def steps(thread):
        first = await stopped_in(engine, thread)
        others = offer(thread, asks(*range(12)))
        now[0] = 2.9
        engine.go.set()
        await asyncio.gather(first, *others)
        engine.go.clear()
        engine.entered.clear()
        await stopped_in(engine, thread)  # this batch should end 1.86 s from now
        assert not thread.admits()
        now[0] += 0.9
        assert thread.admits()

    run(engine, steps, max_wait_seconds=1, max_batch=6, queue=100)


@pytest.mark.parametrize(
    ("came", "seconds", "expected"),
    [(0, 0.02, 64), (64, 0.02, 48), (127, 0.02, 33), (128, 0.02, 0), (128, 0.021, 34), (400, 0.03, 0)],
)
def test_no_row_comes_early_if_twice_as_many_come_as_fit_and_half_of_a_batch_in_time(came, seconds, expected):
    assert Rhythm(64, 0, 1000, 0.005, 60).rows_too_early(came, seconds) == expected


@pytest.mark.parametrize(
    ("max_batch", "max_wait", "seconds", "expected"),
    [
        (64, 0.1, 0.02, 320),
        (64, 0.1, 0.2, 64),
        (256, 0.1, 0.02, 320),
        (8, 0.1, 0.02, 40),
        (64, 9, 0.001, 1000),
    ],
)
def test_a_whole_batch_may_wait_and_never_more_than_the_queue(max_batch, max_wait, seconds, expected):
    assert Rhythm(max_batch, 0, 1000, max_wait, 60).rows_in_time(seconds) == expected


def test_nobody_computes_what_nobody_waits_for(monkeypatch):
    engine, now = Stopped(), [0.0]
    monkeypatch.setattr("widenet.serve.batches.monotonic", lambda: now[0])

    async def steps(thread):
        await stopped_in(engine, thread)
        offer(thread, asks(1))
        now[0] = 5.0
        offer(thread, asks(2))
        now[0] = 11.0
        engine.go.set()

    run(engine, steps, deadline_seconds=10)
    assert engine.batches == [["a"], ["2"]]


def test_after_the_deadline_all_that_came_together_is_refused_and_later_results_are_dropped(monkeypatch):
    engine = Stopped()
    monkeypatch.setattr(
        "widenet.serve.batches.monotonic", lambda: 0.0
    )  # the first row is taken, however late

    async def steps(thread):
        await stopped_in(engine, thread)
        together = offer(thread, asks(1, 2))
        results = await asyncio.gather(*together)
        assert [(result.status, result.mistake.code) for result in results] == [(504, "too_late")] * 2
        engine.go.set()

    run(engine, steps, deadline_seconds=0.05, max_batch=1)


def test_a_swap_comes_between_two_batches():
    engine, other = Stopped(), Stopped("second")
    other.go.set()

    async def steps(thread):
        first = await stopped_in(engine, thread)
        (second,) = offer(thread, asks(1))
        thread.swap(other)
        engine.go.set()
        found = await asyncio.gather(first, second)
        assert [answer.fingerprint for answer in found] == ["first a", "second 1"]

    run(engine, steps)


def test_the_end_answers_what_was_accepted_and_accepts_no_more():
    engine, found = Stopped(), []

    async def steps(thread):
        first = await stopped_in(engine, thread)
        others = offer(thread, asks(1, 2, 3, 4))
        end = asyncio.create_task(asyncio.to_thread(thread.close))
        while thread.is_open:
            await asyncio.sleep(0)
        with pytest.raises(RefusedError, match="the service ends"):
            offer(thread, asks(5))
        engine.go.set()
        found.extend(await asyncio.gather(first, *others))
        await end

    run(engine, steps)
    assert len(found) == 5


def test_a_batch_that_fails_is_answered_and_the_next_one_computed(capsys):
    engine = Stopped(broken=True)

    async def steps(thread):
        first = await stopped_in(engine, thread)
        engine.go.set()
        refused = await first
        assert (refused.status, refused.mistake.message) == (500, "the model failed on this request.")
        engine.broken = False
        assert (await offer(thread, asks(1))[0]).fingerprint == "first 1"

    run(engine, steps)
    said = capsys.readouterr().err
    assert said.startswith("widenet: a batch failed, and its rows are computed one by one: ValueError.\n")
    assert "in answers" in said
    assert "a fault" not in said.replace('ValueError("a fault")', "")


def test_a_row_that_fails_takes_no_other_with_it(capsys):
    engine = Stopped()

    def answers(asks, whole=engine.answers):
        found = whole(asks)
        if "2" in engine.batches[-1]:
            raise ValueError("a fault")
        return found

    async def steps(thread):
        first = await stopped_in(engine, thread)
        others = offer(thread, asks(1, 2, 3))
        engine.answers = answers
        engine.go.set()
        await first
        one, two, three = await asyncio.gather(*others)
        assert (one.fingerprint, two.status, three.fingerprint) == ("first 1", 500, "first 3")

    run(engine, steps)
    assert capsys.readouterr().err.count("a batch failed") == 1


def test_an_answer_that_cannot_be_written_takes_no_other_with_it(capsys):
    engine = Stopped()

    def fault(_):
        raise ValueError("a fault")

    async def steps(thread):
        first = await stopped_in(engine, thread)
        thread.offer(asks(1), fault)
        (second,) = offer(thread, asks(2))
        engine.go.set()
        assert [(await each).fingerprint for each in (first, second)] == ["first a", "first 2"]

    run(engine, steps, deadline_seconds=5)
    assert capsys.readouterr().err.startswith("widenet: an answer was lost: ValueError.\n")


def test_a_thread_that_dies_refuses_what_waits_and_what_comes(capsys):
    engine = Stopped()

    async def steps(thread):
        (lost,) = offer(thread, asks(1))
        assert (await lost).status == 500
        assert thread.has_died
        with pytest.raises(RefusedError, match="the service ends"):
            offer(thread, asks(2))

    run(engine, steps, max_batch=None)
    assert "the thread of the model died: TypeError" in capsys.readouterr().err
