"""A thread for work: a bound on what waits, a deadline, and an end that waits for nothing."""

import asyncio
from threading import Event

import pytest

from widenet.serve.messages import RefusedError
from widenet.serve.work import WorkThread


class Stopped:
    """Work that waits until it is let go."""

    def __init__(self):
        self.entered, self.go = Event(), Event()

    def __call__(self):
        self.entered.set()
        self.go.wait()
        return "first"


def run(steps, room):
    """Run the steps of a test with a thread in the midst of its first work."""

    async def all_steps():
        thread, work = WorkThread("work", room), Stopped()
        thread.start()
        try:
            first = asyncio.create_task(thread.do(work))
            await asyncio.to_thread(work.entered.wait)
            await steps(thread, work, first)
        finally:
            work.go.set()

    asyncio.run(all_steps())


def test_what_has_no_room_is_refused_and_the_rest_done_in_order():
    async def steps(thread, work, first):
        second = asyncio.create_task(thread.do(lambda: "second"))
        await asyncio.sleep(0)
        with pytest.raises(RefusedError) as refused:
            await thread.do(lambda: "third")
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        work.go.set()
        assert await asyncio.gather(first, second) == ["first", "second"]
        assert await thread.do(lambda: "fourth") == "fourth"

    run(steps, room=2)


def test_what_nobody_waits_for_any_more_is_not_begun():
    done = []

    async def steps(thread, work, first):
        with pytest.raises(RefusedError) as refused:
            await thread.do(lambda: done.append("late"), seconds=0)
        assert refused.value.status == 504
        work.go.set()
        await first
        await thread.do(lambda: done.append("next"))

    run(steps, room=2)
    assert done == ["next"]


def test_the_end_refuses_what_waits_and_what_comes():
    async def steps(thread, work, first):
        second = asyncio.create_task(thread.do(lambda: "second"))
        await asyncio.sleep(0)
        thread.end()
        for task in (first, second, thread.do(lambda: "third")):
            with pytest.raises(RefusedError, match="the service ends"):
                await task
        assert not work.go.is_set()

    run(steps, room=2)


def test_a_failure_is_the_one_of_the_work():
    async def steps(thread, work, _):
        work.go.set()
        with pytest.raises(ZeroDivisionError):
            await thread.do(lambda: 1 / 0)
        assert await thread.do(lambda: 1) == 1

    run(steps, room=2)
