"""Starts and stops trainings: each is a process of its own, which goes on when the pages end."""

import json
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

TrainCommand = Callable[[Sequence[Path], Path, Path, int], Sequence[str]]
"""Gives the words of a command from documents, dataset, run and number of processes."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_OUTPUT, _PROCESS = "output.txt", "process.json"


class Trainings:
    """The trainings of a folder, of which one runs at a time; safe to use from several threads.

    Each is `widenet train` in a session of its own, so no signal to the pages reaches it. Beside its run, the
    hidden folder `.NAME.start` keeps the documents that it was started with, all that it has printed, and
    which process it is.

    Args:
        folder: The folder that holds the runs.
        command: Gives the command that trains.
    """

    def __init__(self, folder: Path, command: TrainCommand) -> None:
        self._folder, self._command = folder.resolve(), command
        self._own: dict[Path, subprocess.Popen[bytes]] = {}
        self._stopping: dict[Path, int] = {}
        self._changing = Lock()

    def path(self, name: str) -> Path:
        """Return the path of a run to begin; raises RefusedError unless the name is a single component."""
        if not _NAME.fullmatch(name):
            raise RefusedError(
                422,
                "wrong_name",
                "the name must be 1 to 100 letters, digits, dots, dashes or underscores, the first a letter"
                " or a digit.",
            )
        return self._folder / name

    def start(
        self, name: str, data: Path, documents: Mapping[str, str], processes: int, busy: str | None
    ) -> None:
        """Begin a training.

        Args:
            name: Name of the run.
            data: The dataset directory.
            documents: The text of network.json and of training.json.
            processes: Number of processes.
            busy: A run of the folder that is being trained, if there is one.

        Raises:
            RefusedError: The name is wrong or taken, or another training runs.
            OSError: The system refuses.
        """
        path = self.path(name)
        with self._changing:
            self._check_alone(busy)
            if path.exists() or path.is_symlink():
                raise RefusedError(
                    409, "taken", f"the folder {self._folder.name} holds {name} already. Choose another name."
                )
            beside = _beside(path)
            beside.mkdir(exist_ok=True)
            for file, text in documents.items():
                (beside / file).write_text(text, encoding="utf-8")
            (beside / _OUTPUT).unlink(missing_ok=True)
            self._run(path, self._command([beside / file for file in documents], data, path, processes))

    def stop(self, path: Path) -> None:
        """Ask a training to save a checkpoint and end; raises RefusedError if no page has started it."""
        path = path.resolve()
        with self._changing:
            pid = self._process(path)
            if pid is None:
                raise RefusedError(
                    409, "not_started_here", "no training of this run that these pages have started goes on."
                )
            if self._stopping.get(path) == pid:  # a second signal would end it without a checkpoint
                raise RefusedError(409, "stopping", "it saves a checkpoint and ends already.")
            self._stopping[path] = pid
            os.kill(pid, signal.SIGTERM)

    def is_alive(self, path: Path) -> bool:
        """Return whether a training that pages of this folder have started goes on."""
        return self._process(path.resolve()) is not None

    def is_stopping(self, path: Path) -> bool:
        """Return whether a training was asked to stop, and has not ended yet."""
        pid = self._process(path.resolve())
        return pid is not None and self._stopping.get(path.resolve()) == pid

    def output(self, path: Path) -> str | None:
        """Return the end of what a training has printed; None if no page has started it."""
        try:
            with (_beside(path.resolve()) / _OUTPUT).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - OUTPUT_BYTES))
                return file.read().decode("utf-8", errors="replace")
        except OSError:
            return None

    def has_started(self, name: str) -> bool:
        """Return whether pages of this folder have started a training of this name."""
        return bool(_NAME.fullmatch(name)) and (_beside(self._folder / name) / _PROCESS).is_file()

    def _check_alone(self, busy: str | None) -> None:
        started = (path.name for path in [*self._own, *self._recorded()] if self._process(path) is not None)
        busy = busy or next(started, None)
        if busy is not None:
            raise RefusedError(
                409, "busy", f"{busy} is being trained. These pages start one training at a time."
            )

    def _recorded(self) -> list[Path]:
        """The runs directly in the folder that a process of these pages, or one before, has started."""
        notes = self._folder.glob(f".*.start/{_PROCESS}")
        return [self._folder / note.parent.name.removeprefix(".").removesuffix(".start") for note in notes]

    def _run(self, path: Path, words: Sequence[str]) -> None:
        beside = _beside(path)
        with (beside / _OUTPUT).open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 our own command
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._own[path] = process
        note = {"pid": process.pid, "began": _began(process.pid)}
        (beside / _PROCESS).write_text(json.dumps(note), encoding="utf-8")

    def _process(self, path: Path) -> int | None:
        """Return the id of the process that trains a run, if pages have started it; None without one."""
        own = self._own.get(path)
        if own is not None:
            return own.pid if own.poll() is None else None
        try:
            note = json.loads((_beside(path) / _PROCESS).read_text(encoding="utf-8"))
            pid, began = int(note["pid"]), note["began"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return pid if began is not None and _began(pid) == began else None


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.start")


def _began(pid: int) -> str | None:
    """Return when a process began, which tells it from a later one of the same id; None if it has ended.

    Also None where the system keeps no /proc: there, only the pages that started a training can stop it.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state == "Z" else fields[18]  # field 22: ticks since the machine's start
