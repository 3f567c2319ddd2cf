"""Tells browsers that runs have changed, as server-sent events, while any browser listens."""

import asyncio
from collections.abc import AsyncIterator

from widenet.ui.known_runs import KnownRuns

_SECONDS_BETWEEN_LOOKS = 0.5
_LOOKS_BETWEEN_SEARCHES = 5
"""New and finished runs are looked for this much less often than epochs of those that train."""

_SECONDS_BETWEEN_SIGNS = 30.0
"""A quiet stream sends an empty comment this often, so that nothing between here and the browser ends it."""


class Following:
    """Looks at runs again and again while somebody listens; the event loop calls it.

    Args:
        runs: The runs.
    """

    def __init__(self, runs: KnownRuns) -> None:
        self._runs, self._is_ending = runs, False
        self._listeners: set[asyncio.Event] = set()
        self._task: asyncio.Task[None] | None = None
        self._told = runs.now.version

    @property
    def is_looking(self) -> bool:
        """Whether somebody listens, so that the runs are looked at now and then."""
        return self._task is not None

    async def events(self, version: int) -> AsyncIterator[bytes]:
        """Yield an event for each change after a version, until the service ends."""
        news = asyncio.Event()
        self._listeners.add(news)
        if self._task is None:
            self._task = asyncio.create_task(self._look())
        try:
            yield b": listening\n\n"
            while not self._is_ending:
                known = self._runs.now
                if known.version > version:
                    version = known.version
                    yield f"id: {version}\ndata: {version}\n\n".encode()
                try:
                    await asyncio.wait_for(news.wait(), _SECONDS_BETWEEN_SIGNS)
                except TimeoutError:
                    yield b":\n\n"
                news.clear()
        finally:
            self._listeners.discard(news)

    def end(self) -> None:
        """End all events."""
        self._is_ending = True
        self._tell()

    async def _look(self) -> None:
        looks = 0
        try:
            while self._listeners and not self._is_ending:
                everywhere = looks % _LOOKS_BETWEEN_SEARCHES == 0
                known = await asyncio.to_thread(self._runs.look, everywhere)
                looks += 1
                if known.version != self._told:  # also where a page has read the change first
                    self._told = known.version
                    self._tell()
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        finally:
            self._task = None

    def _tell(self) -> None:
        for news in self._listeners:
            news.set()
