"""Starts and stops trainings: each is a process of its own, which goes on when the pages end."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Lock

from widenet.serve.requests import RefusedError

OUTPUT_BYTES = 2**16
"""Longest end of a training's output that a page shows."""

TrainCommand = Callable[[Sequence[Path], Path, Path], Sequence[str]]
"""Gives the words of a command from documents, dataset and run."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OUTPUT = "output.txt"


class Trainings:
    """The trainings of a folder, of which one runs at a time; safe to use from several threads.

    Each is `widenet train` in a session of its own, so no signal to the pages reaches it. Beside its run, the
    hidden folder `.NAME.start` keeps the documents that it was started with, and all that it has printed.

    Args:
        folder: The folder that holds the runs.
        command: Gives the command that trains.
    """

    def __init__(self, folder: Path, command: TrainCommand) -> None:
        self._folder, self._command = folder.resolve(), command
        self._processes: dict[Path, subprocess.Popen[bytes]] = {}
        self._stopping: set[Path] = set()
        self._changing = Lock()

    def path(self, name: str) -> Path:
        """Return the path of a run to begin; raises RefusedError unless the name is a single component."""
        if not _NAME.fullmatch(name):
            rule = (
                "must be 1 to 100 letters, digits, dots, dashes or underscores, the first a letter or a digit"
            )
            raise RefusedError(422, "wrong_name", rule, option="name")
        return self._folder / name

    def start(self, name: str, data: Path, documents: Mapping[str, str], busy: str | None) -> None:
        """Begin a training.

        Args:
            name: Name of the run.
            data: The dataset directory.
            documents: The text of network.json and of training.json.
            busy: A run of the folder that is being trained, if there is one.

        Raises:
            RefusedError: The name is wrong or taken, or another training runs.
            OSError: The system refuses.
        """
        path = self.path(name)
        with self._changing:
            busy = busy or next((other.name for other in self._processes if self.is_alive(other)), None)
            if busy is not None:
                rule = f"{busy} is being trained, and these pages start one training at a time"
                raise RefusedError(409, "busy", rule)
            if path.exists() or path.is_symlink():
                raise RefusedError(409, "taken", "must be a new one", option="name", value=name)
            beside = _beside(path)
            beside.mkdir(exist_ok=True)
            for file, text in documents.items():
                (beside / file).write_text(text, encoding="utf-8")
            with (beside / _OUTPUT).open("wb") as output:
                self._processes[path] = subprocess.Popen(  # noqa: S603 our own command
                    self._command([beside / file for file in documents], data, path),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                )
            self._stopping.discard(path)

    def stop(self, path: Path) -> None:
        """Ask a training to save a checkpoint and end; raises RefusedError if these pages do not train it."""
        path = path.resolve()
        with self._changing:
            if not self.is_alive(path) or path in self._stopping:  # a second signal would save no checkpoint
                raise RefusedError(409, "not_training", "these pages train no such run, or it ends already")
            self._stopping.add(path)
            os.kill(self._processes[path].pid, signal.SIGTERM)

    def is_alive(self, path: Path) -> bool:
        """Return whether a training that these pages have started goes on."""
        process = self._processes.get(path.resolve())
        return process is not None and process.poll() is None

    def is_stopping(self, path: Path) -> bool:
        """Return whether a training was asked to stop, and has not ended yet."""
        return path.resolve() in self._stopping and self.is_alive(path)

    def has_started(self, name: str) -> bool:
        """Return whether these pages have started a training of this name."""
        return self._folder / name in self._processes

    def output(self, path: Path) -> str | None:
        """Return the end of what a training has printed; None if no page has started it."""
        try:
            with (_beside(path.resolve()) / _OUTPUT).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - OUTPUT_BYTES))
                return file.read().decode("utf-8", errors="replace")
        except OSError:
            return None


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.start")
