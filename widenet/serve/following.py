"""Follows a run: a newer model is loaded beside the one that answers, checked, and then swapped in."""

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, Thread

from widenet.checkpoint import MANIFEST
from widenet.errors import WidenetError
from widenet.serve.batches import ModelThread
from widenet.serve.engine import Engine
from widenet.serve.messages import RefusedError

_SECONDS_BETWEEN_LOOKS = 1.0


def state_of(run: Path) -> tuple[str, str, tuple[int, int] | None]:
    """Return what changes when a run's path leads to another model: its place, its pointer, its weights."""
    place, pointer, weights = run.resolve(), "", None
    try:
        status = (place / "model" / MANIFEST).stat()
        weights = status.st_ino, status.st_mtime_ns
    except OSError:
        try:
            pointer = (place / "checkpoints" / "latest").read_text("utf-8", errors="replace")
        except OSError:
            pointer = ""
    return str(place), pointer, weights


class Follower:
    """Replaces the model of a thread when its run has a newer one, or when a request asks for another run.

    Attributes:
        run: The run that is followed.
    """

    def __init__(self, run: Path, model: ModelThread, load: Callable[[Path], Engine]) -> None:
        self.run, self._model, self._load = run, model, load
        self._looked, self._state = Lock(), state_of(run)
        self._is_ending = Event()
        self._thread = Thread(target=self._follow, name="follower", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End; a load that has begun is not waited for."""
        self._is_ending.set()

    def load(self, run: Path) -> str:
        """Serve another run from now on, and follow it; returns the fingerprint.

        Raises:
            RefusedError: Its model cannot be loaded; the one before goes on answering.
        """
        with self._looked:
            state = state_of(run)
            try:
                engine = self._load(run)
            except (WidenetError, OSError) as error:
                self._model.measured.failed_loads.inc()
                sentence = str(error) if isinstance(error, WidenetError) else "its files cannot be read."
                raise RefusedError(422, "not_loaded", sentence) from None
            self.run, self._state = run, state
            self._model.swap(engine)
            return engine.fingerprint

    def look(self) -> None:
        """Swap the model in if the run has another one; a failure is told once, and the old one stays."""
        with self._looked:
            state = state_of(self.run)
            if state == self._state:
                return
            self._state = state
            try:
                engine = self._load(self.run)
            except (WidenetError, OSError) as error:
                self._model.measured.failed_loads.inc()
                _say(f"{self.run}: the model that answers stays: {error}")
                return
            if engine.fingerprint != self._model.engine.fingerprint:
                self._model.swap(engine)
                _say(f"{self.run}: a newer model answers: {engine.fingerprint}")

    def _follow(self) -> None:
        while not self._is_ending.wait(_SECONDS_BETWEEN_LOOKS):
            self.look()


def _say(sentence: str) -> None:
    """Print a line to standard error; control characters become escapes."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in sentence)
    print(f"widenet: {shown}", file=sys.stderr, flush=True)  # noqa: T201
