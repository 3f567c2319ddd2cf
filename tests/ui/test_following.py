"""Which changes of runs are told to whoever listens, and what a listener of a quiet folder gets."""

import asyncio

import pytest

from tests.ui.conftest import training
from widenet.ui import events as following
from widenet.ui.events import Following
from widenet.ui.known_runs import KnownRuns


@pytest.fixture
def known(runs):
    known = KnownRuns(runs)
    known.look()
    return known


async def changed(stream):
    """The version of the next change; signs of life are passed over."""
    async for event in stream:
        if event.startswith(b"id: "):
            return int(event.partition(b"data: ")[2])
    return None


def test_a_change_that_a_page_reads_first_is_told_too(runs, known, monkeypatch):
    sleep = asyncio.sleep

    async def pause(_):
        if known.now.version == start:  # a page reads the change between two looks
            run.log({"epoch": 2, "loss": 0.5})
            known.look()
        await sleep(0)

    async def listen():
        follower = Following(known)
        stream = follower.events(start)
        assert await anext(stream) == b": listening\n\n"
        assert await asyncio.wait_for(changed(stream), 20) == known.now.version > start
        follower.end()

    with training(runs / "untied") as run:
        start = known.look().version
        monkeypatch.setattr(asyncio, "sleep", pause)
        asyncio.run(listen())


def test_a_quiet_stream_gives_signs_of_life(known, monkeypatch):
    monkeypatch.setattr(following, "_SECONDS_BETWEEN_SIGNS", 0)

    async def listen():
        follower = Following(known)
        stream = follower.events(known.now.version)
        assert [await anext(stream) for _ in range(3)] == [b": listening\n\n", b":\n\n", b":\n\n"]
        follower.end()

    asyncio.run(listen())
