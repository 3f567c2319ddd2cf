"""The path of a run and its small files: what is there, what is locked, and what a killed training left."""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from widenet.errors import CheckpointError
from widenet.parallel.launch import is_note_of_launch
from widenet.stores.durable import appearing, force_to_disk, put_in_place
from widenet.stores.runs import RunMirror
from widenet.training.checkpoint import writing
from widenet.training.existing_run import CUT, DATA, FITTED, LOCK, busy, is_locked, taken, waiting

LAUNCH, START = ".torchrun", "start"
"""Files that name the torchrun launch that trains a run, and the run whose weights it began with."""

TRACKING = "tracking.json"
"""The file with the id that a tracker has given the run."""

VECTORS = "vectors.json"
"""The file with the SHA-256 of each file of vectors that a run begins with, by the name of the weight."""

WITHOUT_WEIGHTS = {
    "network.json",
    FITTED,
    "training.json",
    "fields.json",
    "vocabulary",
    "attributes",
    "log.jsonl",
    "machine.json",
    "tensorboard",
    "checkpoints",
    LOCK,
    LAUNCH,
    START,
    TRACKING,
    VECTORS,
    CUT,
}
"""The entries of a run directory before its first checkpoint, beside a dataset that its training has cut."""


def start_of(run: Path) -> Path | None:
    """The run whose weights this one begins with; None if it begins with its initializers'."""
    path = run / START
    if not path.is_file():
        return None
    name = path.read_bytes()
    if not name or b"\0" in name:
        raise CheckpointError("must hold the path of a run", place=path)
    return Path(os.fsdecode(name))


def check_free(path: Path) -> None:
    """Raise CheckpointError if a path holds something that a new run must not replace."""
    if is_taken(path):
        raise taken(path)


def check_finished(start: Path) -> None:
    """Raise CheckpointError if a run does not exist or has no finished model."""
    if not start.exists():
        raise CheckpointError("does not exist", place=start)
    if not (start / "model").is_dir():
        raise CheckpointError("holds no finished model to start from", place=start)


def launch_note(path: Path, mirror: RunMirror | None) -> Path:
    """The file that names the torchrun launch that trains a run: in its directory, or beside a mirror's."""
    return path / LAUNCH if mirror is None else mirror.launch


def holds_work_of(path: Path, mirror: RunMirror | None, launch: str) -> bool:
    """Return whether a path is a run with checkpoints whose latest training was started by this launch.

    A run in a store may have its checkpoints there: its latest training here is all that counts.
    """
    note = launch_note(path, mirror)
    is_begun = mirror is not None or ((path / "network.json").is_file() and not _holds_no_work(path))
    if not is_begun or not note.is_file():
        return False
    return is_note_of_launch(note.read_text(encoding="utf-8", errors="replace"), launch)


def put(beside: Path, path: Path, keeps_data: bool = False) -> None:
    """Move a new run to its path; replace a run there that has no checkpoint and is not being trained.

    A dataset that waits there alone in the folder `DATA` becomes part of the run.

    Args:
        beside: The new run.
        path: Where it goes.
        keeps_data: Whether the new run trains on the dataset that a replaced run was given.

    Raises:
        CheckpointError: The path is taken.
        OSError: The system refuses.
    """
    if _holds_no_work(path):
        with locked(path):
            check_free(path)  # another training of it may have begun and ended meanwhile
            if keeps_data:
                _move_data(path, beside)
            put_in_place(beside, path)
        return
    waits = holds_data_alone(path)
    if waits:
        (path / DATA).rename(beside / DATA)
    try:
        beside.rename(path)  # this replaces an empty directory, but no other
    except OSError:
        if waits:
            (beside / DATA).rename(path / DATA)
        raise
    force_to_disk(path.parent)


def _move_data(path: Path, beside: Path) -> None:
    """Move the dataset that a training was given, with the note on it, to another run."""
    for name in (CUT, DATA):  # in this order: a dataset beside `CUT` may be removed with its run
        if (path / name).exists():
            (path / name).rename(beside / name)


def drop_unfinished(path: Path) -> None:
    """Remove directories that killed trainings left beside a run, unless another process is making them.

    Raises:
        OSError: The system refuses.
    """
    name = re.compile(rf"\.{re.escape(path.name)}\.(old|[0-9a-f]+)")
    for folder in path.parent.iterdir():
        with suppress(FileNotFoundError, CheckpointError):  # renamed meanwhile, or locked
            if name.fullmatch(folder.name) and folder.is_dir() and _lacks_weights(folder):
                with locked(folder):
                    shutil.rmtree(folder)


def without_weights(path: Path) -> CheckpointError:
    """Return the error for a run that holds no weights yet."""
    if is_locked(path):
        return CheckpointError("is being trained and holds no weights yet", place=path)
    safe = f"; the run that it was to replace is {waiting(path)}" if waiting(path).exists() else ""
    return CheckpointError(f"holds no weights yet{safe}", place=path)


@contextmanager
def locked(path: Path, run: Path | None = None) -> Iterator[Callable[[], bool]]:
    """Lock a run directory against other trainings; the lock ends with the process at the latest.

    Args:
        path: The directory.
        run: The run that the error names, if it is not the directory.

    Yields:
        Whether the path still holds what was locked: it may have been moved or removed, and made anew.

    Raises:
        CheckpointError: Another process is training the run.
    """
    with ExitStack() as stack:
        with writing(path):
            try:
                file = stack.enter_context((path / LOCK).open("w"))
                _lock(file)
            except (BlockingIOError, FileNotFoundError):
                raise busy(run or path) from None
        if not _holds(path, file):
            raise busy(run or path)
        yield partial(_holds, path, file)


def _holds(path: Path, file: IO[str]) -> bool:
    """Whether an open file is the lock that a directory has now."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), (path / LOCK).stat())
    except OSError:
        return False


def _lock(file: IO[str]) -> None:
    """Lock a file for this process alone; raises BlockingIOError if another training has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # only `is_locked` shares the lock, for an instant
        fcntl.flock(file, fcntl.LOCK_EX)


def is_taken(path: Path) -> bool:
    """Return whether a path holds something that a new run does not take in or replace by itself."""
    if not path.exists() or _holds_no_work(path) or holds_data_alone(path):
        return False
    return not path.is_dir() or any(path.iterdir())


def holds_data_alone(path: Path) -> bool:
    """Return whether a directory holds a dataset in `DATA`, and nothing else."""
    return (path / DATA / "dataset.json").is_file() and _names(path) == {DATA}


def _holds_no_work(path: Path) -> bool:
    """Return whether a directory is a run whose training ended before its first checkpoint."""
    if not (path / "network.json").is_file() or any((path / "checkpoints").glob("epoch-*")):
        return False
    return _lacks_weights(path)


def _lacks_weights(folder: Path) -> bool:
    """Return whether a directory has nothing but what a run has before its first checkpoint."""
    names = _names(folder)
    return names <= (WITHOUT_WEIGHTS | {DATA} if CUT in names else WITHOUT_WEIGHTS)


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def values(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file of JSON lines; skip lines that are not objects, or nest too deeply."""
    return objects(path.read_bytes().splitlines() if path.is_file() else ())


def objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the objects in JSON lines; see `values`."""
    for line in lines:
        with suppress(ValueError, RecursionError):
            value = json.loads(line.decode("utf-8", errors="replace"))
            if isinstance(value, dict):
                yield value


def write_whole(path: Path, text: bytes) -> None:
    """Replace a file; raises CheckpointError."""
    with writing(path), appearing(path) as file:
        file.write(text)


def beside(path: Path) -> Path:
    """The hidden folder in which the dataset of a run, or a study, is made before it begins."""
    return path.with_name(f".{path.name}.cut")


@contextmanager
def hidden(path: Path) -> Iterator[Path]:
    """Give the hidden folder beside a run or study, locked and without what a killed process left there.

    What the run or study has not taken in by the end of the block is removed.

    Raises:
        CheckpointError: Another process has the folder, or it cannot be written.
    """
    folder = beside(path)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, path) as is_there:
        try:
            with writing(folder):
                for entry in folder.iterdir():
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                    elif entry.name != LOCK:
                        entry.unlink()
            yield folder
        finally:
            if is_there():
                shutil.rmtree(folder, ignore_errors=True)
