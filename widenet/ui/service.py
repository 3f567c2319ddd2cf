"""Starts the pages: refuse what is wrong, bind the port, read the runs, answer until SIGTERM."""

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn

from widenet.data.dataset import Dataset
from widenet.errors import OptionError
from widenet.serve.guard import guard_of
from widenet.serve.listening import BACKLOG, address_of, bound, configuration
from widenet.ui.app import Pages
from widenet.ui.arguments import UiArguments
from widenet.ui.known_runs import KnownRuns
from widenet.ui.session import Session

_SECONDS_TO_END = 10


def serve(arguments: UiArguments, url: Callable[[str], None]) -> None:
    """Answer requests until SIGTERM or Ctrl-C.

    Args:
        arguments: What to show, and where.
        url: Called with the address when the pages are ready.

    Raises:
        WidenetError: The folder, the dataset, the token or the port cannot be used.
    """
    folder = Path(arguments.folder)
    guard = guard_of(arguments.host, arguments.token_file, arguments.allow_host, 0)
    if not folder.is_dir():
        raise OptionError(f"{folder} is not a folder. Train first, or name a folder that holds runs.")
    with bound(arguments.host, arguments.port) as listening:
        dataset = None if arguments.data is None else Dataset.open(arguments.data)
        runs = KnownRuns(folder)
        runs.look()
        pages = Pages(runs, Session(guard, listening.getsockname()[1]), dataset)
        config = configuration(pages.app(), "off", _SECONDS_TO_END)
        listening.listen(BACKLOG)
        url(address_of(listening))
        with suppress(KeyboardInterrupt):  # uvicorn raises the signal again after the last answer
            _Server(config, pages).run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn's server, which ends the events that browsers listen to."""

    def __init__(self, config: uvicorn.Config, pages: Pages) -> None:
        super().__init__(config)
        self._pages = pages

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was accepted."""
        self._pages.following.end()
        await super().shutdown(sockets)
