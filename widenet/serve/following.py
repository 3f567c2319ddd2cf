"""Follows a run: a newer model is loaded beside the one that answers, checked, and then swapped in."""

import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, Thread

from widenet.errors import WidenetError, in_one_line
from widenet.serve.batches import ModelThread
from widenet.serve.engine import Engine
from widenet.serve.requests import RefusedError

_SECONDS_BETWEEN_LOOKS = 1.0


State = tuple[str, str, tuple[int, int] | None]


def state_of(run: Path) -> State:
    """Return what changes when a run's path leads to another model: its place, its pointer, its weights."""
    place, pointer, weights = run.resolve(), "", None
    try:
        status = (place / "model" / "manifest.json").stat()
        weights = status.st_ino, status.st_mtime_ns
    except OSError:
        try:
            pointer = (place / "checkpoints" / "latest").read_text("utf-8", errors="replace")
        except OSError:
            pointer = ""
    return str(place), pointer, weights


class Follower:
    """Replaces the model of a thread when its run has a newer one, or when a request asks for another run.

    Args:
        run: The run that is followed.
        state: Its state before the model that answers was loaded.
        model: The thread of the model.
        load: Loads the model of a run.
    """

    def __init__(self, run: Path, state: State, model: ModelThread, load: Callable[[Path], Engine]) -> None:
        self.run, self._model, self._load = run, model, load
        self._looked, self._state, self._told = Lock(), state, ""
        self._is_ending = Event()
        self._thread = Thread(target=self._follow, name="follower", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End; a load that has begun is not waited for."""
        self._is_ending.set()

    def is_alive(self) -> bool:
        """Return whether it still looks or loads."""
        self._thread.join(0.1)
        return self._thread.is_alive()

    def load(self, run: Path) -> str:
        """Serve another run from now on, and follow it; returns the fingerprint.

        Raises:
            RefusedError: Its model cannot be loaded; the one before goes on answering.
        """
        with self._looked:
            try:
                state, engine = state_of(run), self._load(run)
            except Exception as error:
                self._model.measured.failed_loads.inc()
                if isinstance(error, WidenetError):
                    raise RefusedError(422, "not_loaded", str(error)) from None
                self._tell(_failure(run, error))
                raise RefusedError(422, "not_loaded", "it cannot be loaded; the log says why") from None
            self.run, self._state = run, state
            self._model.swap(engine)
            return engine.fingerprint

    def look(self) -> None:
        """Swap the model in if the run has another one; a failure is told once, and the old one stays."""
        with self._looked:
            state = None
            try:
                state = state_of(self.run)
                if state == self._state:
                    return
                engine = self._load(self.run)
            except Exception as error:
                self._model.measured.failed_loads.inc()
                if state is not None and not is_of_system(error):  # the same files may be readable later
                    self._state = state
                if self._told != (said := _failure(self.run, error)):
                    self._tell(said)
                    self._told = said
                return
            self._state, self._told = state, ""
            if engine.fingerprint != self._model.engine.fingerprint:
                self._model.swap(engine)
                _say(f"{self.run}: a newer model answers: {engine.fingerprint}")

    def _tell(self, failure: str) -> None:
        """Print a failure, unless the end of the service has caused it."""
        if not self._is_ending.is_set():
            _say(failure)

    def _follow(self) -> None:
        while not self._is_ending.wait(_SECONDS_BETWEEN_LOOKS):
            self.look()


def _failure(run: Path, error: Exception) -> str:
    is_sentence = isinstance(error, WidenetError)
    sentence = str(error) if is_sentence else f"{type(error).__name__}: {error}"
    return f"{run}: the model that answers stays: {sentence}"


def is_of_system(error: BaseException) -> bool:
    """Return whether the system caused an error: a disk was away, or too many files were open."""
    return any(isinstance(each, OSError) for each in (error, error.__cause__, error.__context__))


def _say(sentence: str) -> None:
    """Print a line to standard error; control characters become escapes."""
    print(f"widenet: {in_one_line(sentence)}", file=sys.stderr, flush=True)  # noqa: T201
