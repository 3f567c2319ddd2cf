"""Ctrl-C and SIGTERM, turned into a question that the training loop asks."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruption(interrupted: Callable[[], bool] | None) -> Iterator[Callable[[], bool]]:
    """What tells whether to stop: the caller's function, or Ctrl-C and SIGTERM.

    A second signal stops at once.
    """
    if interrupted is not None or threading.current_thread() is not threading.main_thread():
        yield interrupted or (lambda: False)
        return
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if asked.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
