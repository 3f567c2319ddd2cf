"""The path of a run: what lies there, who trains it, and how a new run takes the place of an earlier one.

Nothing here loads torch, so that a wrong path is refused at once.

A run that is replaced moves to a hidden folder beside its path, and is removed when its successor has
weights. If the successor fails before, it comes back; after a kill it stays in the folder. Folders are only
renamed, so at any moment it is whole, at its path or there.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from widenet.errors import CheckpointError, DataError
from widenet.stores.durable import appearing, force_all_to_disk, put_in_place, remove
from widenet.stores.folders import readable
from widenet.stores.runs import RunMirror

LOCK = ".lock"
"""The file that a training locks."""

DATA = "data"
"""The folder of a run that may hold its dataset, if that was made together with the run."""

CUT = "validation.json"
"""The file that says how the dataset in `DATA` was made, if a training has cut a validation part."""

FITTED = "network-fitted.json"
"""The network with the neighbourhood terms that were fitted when training ended, if any were."""

WHOLE = "whole"
"""The key of machine.json with the digest of the dataset from which that of a run made of another was cut."""

STUDY, TRIALS = "study.json", "trials"
"""The file that describes a study, and the folder of its runs."""

LAUNCH, START = ".torchrun", "start"
"""Files that name the torchrun launch that trains a run, and the run whose weights it began with."""

TRACKING = "tracking.json"
"""The file with the id that a tracker has given the run."""

DOCUMENTS = ("network.json", "training.json", "fields.json")
"""The files whose digests every checkpoint holds; fields.json holds the digests of the vocabularies."""

_OWN = {
    *DOCUMENTS,
    FITTED,
    "vocabulary",
    "attributes",
    "log.jsonl",
    "machine.json",
    "tensorboard",
    "checkpoints",
    "best",
    "model",
    "report.html",
    LOCK,
    LAUNCH,
    START,
    TRACKING,
    CUT,
}
"""The entries of a run directory, beside a dataset."""

_BUSY = "is being trained by another process"

UNFINISHED = re.compile(r"\.(.+)\.(old|[0-9a-f]+\.partial)")
"""Names of files and folders that are being written or replaced."""


def is_free(path: Path) -> bool:
    """Return whether a run may begin at a path without replacing weights or something else.

    Nothing lies there, or a run without a checkpoint, and perhaps the dataset that its training has cut.
    """
    if not path.is_dir():
        return not path.exists()
    names = _names(path)
    own = _OWN | {DATA} if CUT in names else _OWN
    is_begun = names.issuperset(DOCUMENTS) and names <= own and not _has_weights(path)
    return names <= {LOCK} or is_begun


def _names(path: Path) -> set[str]:
    """Return the names in a directory, but for what a killed process has left of the entries of a run."""
    names, own = {entry.name for entry in path.iterdir()}, _OWN | {DATA}
    return {name for name in names if (left := UNFINISHED.fullmatch(name)) is None or left[1] not in own}


def _has_weights(path: Path) -> bool:
    return (path / "model").exists() or any((path / "checkpoints").glob("epoch-*"))


def check_run(path: Path) -> Path:
    """Return the directory of an existing run, or of a copy of one in a store; raises CheckpointError."""
    path = readable(path, "run")
    CheckpointError.require(path.exists(), "does not exist", place=path)
    CheckpointError.require(not is_study(path), "is a study, not a run", place=path)
    is_run = (path / "network.json").is_file() and (path / "fields.json").is_file()
    CheckpointError.require(is_run, "is not a run: it has no network.json and fields.json", place=path)
    return path


def is_study(path: Path) -> bool:
    """Return whether a path is the directory of a study."""
    return (path / STUDY).is_file()


def check(path: Path, needed: Iterable[Path], overwrite: bool) -> None:
    """Check that a new run may begin at a path.

    Args:
        path: The path.
        needed: Directories that the new run reads, which must not lie in a run that it replaces.
        overwrite: Whether it may replace a run.

    Raises:
        CheckpointError: The path is taken.
    """
    is_other = path.resolve() != Path.cwd()
    CheckpointError.require(is_other, "must be a directory to make, not the current one", option="out")
    CheckpointError.require(not path.is_dir() or not is_locked(path), _BUSY, place=path)
    _check_free(path, needed, overwrite)


def _check_free(path: Path, needed: Iterable[Path], overwrite: bool) -> None:
    """Raise CheckpointError unless a path is free, or a run with nothing else in its folder to overwrite.

    A run that waits for the first checkpoint of its successor is to overwrite, too.
    """
    require, waiting = partial(CheckpointError.require, place=path, option="overwrite"), replaced(path)
    for folder in (each.resolve() for each in needed):
        is_beside = not any(folder.is_relative_to(run.resolve()) for run in (path, waiting))
        require(is_beside, "must not replace what the new run reads", option="out", value=str(folder))
    if waiting.exists():
        require(overwrite, f"must be set to replace the run in {waiting}, which can be moved back")
    if is_free(path):
        return
    require(overwrite, "must be a new path, without `resume` and `overwrite`", option="out")
    is_run = all((path / name).is_file() for name in DOCUMENTS)
    require(is_run, "must replace a run that widenet made")
    other = next((name for name in sorted(_names(path)) if name not in _OWN | {DATA}), None)
    require(other is None, "must replace nothing but a run", value=other)
    if (path / DATA).exists():
        from widenet.data.writer import check_replaceable  # loads Arrow

        try:
            check_replaceable(path / DATA)
        except DataError as error:
            raise CheckpointError(str(error)) from None


@contextmanager
def begun(
    path: Path,
    fill: Callable[[Path], None],
    needed: Iterable[Path],
    overwrite: bool,
    is_whole: bool = False,
) -> Iterator[None]:
    """Make a run at a path, locked within the block.

    This replaces a run that ended before its first checkpoint, or with `overwrite` any run; see `replaced`.

    Args:
        path: The path.
        fill: Called with the new folder, to put the run's first files there.
        needed: See `check`. A dataset in the folder of `hidden`, which the caller then holds, becomes the
            run's.
        overwrite: See `check`.
        is_whole: Whether the block makes the whole run: if it fails, the path is as before.

    Raises:
        CheckpointError: The path is taken, or cannot be written.
    """
    check(path, needed, overwrite)
    new = beside(path)
    is_held = new in {folder.parent for folder in needed}
    with nullcontext() if is_held else hidden(path):  # its lock survives the renaming
        with writing(path):
            fill(new)
            force_all_to_disk(new)
            with locked(path) if path.exists() else nullcontext():
                _check_free(path, needed, overwrite)  # another training may have begun and ended meanwhile
                is_worthless = is_free(path)
                put_in_place(new, path, kept=None if is_worthless else replaced(path))
        try:
            yield
        except BaseException:
            if is_whole or (replaced(path).exists() and not _has_weights(path)):
                remove(path)
                with suppress(OSError):  # there was none, or it stays there
                    replaced(path).rename(path)
            raise
        if is_whole:
            remove(replaced(path))


def replaced(path: Path) -> Path:
    """The hidden folder of the run that was at `path` until the one there, which has no weights yet."""
    return path.with_name(f".{path.name}.replaced")


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a directory from another one at its path; None if there is none."""
    return (path.stat().st_dev, path.stat().st_ino) if path.exists() else None


def recover(folder: Path) -> None:
    """Clean up a folder after a crash: restore directories that were being replaced, remove unfinished files.

    The caller must lock the folder against other writers.
    """
    for path in sorted(folder.glob(".*")):
        match = UNFINISHED.fullmatch(path.name)
        if match and match[2] == "old" and not (folder / match[1]).exists():
            path.rename(folder / match[1])
        elif match:
            remove(path, wholly=True)


@contextmanager
def locked(path: Path, run: Path | None = None) -> Iterator[None]:
    """Lock a run directory against other trainings; the lock ends with the process at the latest.

    Args:
        path: The directory.
        run: The run that the error names, if it is not the directory.

    Raises:
        CheckpointError: Another process is training the run.
    """
    with ExitStack() as stack:
        with writing(path):
            try:
                file = stack.enter_context((path / LOCK).open("w"))
                _lock(file)
                # The directory may have been replaced meanwhile.
                is_held = os.path.samestat(os.fstat(file.fileno()), (path / LOCK).stat())
            except (BlockingIOError, FileNotFoundError):
                is_held = False
        CheckpointError.require(is_held, _BUSY, place=run or path)
        yield


def _lock(file: IO[str]) -> None:
    """Lock a file for this process alone; raises BlockingIOError if another training has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # only `is_locked` shares the lock, for an instant
        fcntl.flock(file, fcntl.LOCK_EX)


def is_locked(path: Path) -> bool:
    """Return whether a process is training a run; never disturbs a training."""
    with suppress(FileNotFoundError), (path / LOCK).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def hidden(path: Path) -> Iterator[Path]:
    """Give the hidden folder that becomes a run or study, locked and without what a kill has left there.

    If it has not become one by the end of the block, it is removed.

    Raises:
        CheckpointError: Another process has the folder, or it cannot be written.
    """
    folder = beside(path)
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, path):
        own = identity(folder)
        try:
            with writing(path):
                for entry in folder.iterdir():
                    if entry.name != LOCK:
                        remove(entry, wholly=True)
            yield folder
        finally:
            if identity(folder) == own:
                with suppress(OSError):  # then the next one removes it
                    remove(folder)


def beside(path: Path) -> Path:
    """The hidden folder in which a run, its dataset, or a study is made; see `hidden`."""
    return path.with_name(f".{path.name}.unfinished")


def take(path: Path) -> None:
    """Move the dataset that was made anew for a run into its folder; raises CheckpointError."""
    with writing(path):
        remove(path / DATA)
        for name in (CUT, DATA):  # in this order: a dataset beside `CUT` may be removed with its run
            (beside(path) / name).rename(path / name)


def launch_note(path: Path, mirror: RunMirror | None) -> Path:
    """The file that names the torchrun launch that trains a run: in its directory, or beside a mirror's."""
    return path / LAUNCH if mirror is None else mirror.launch


def is_of_launch(path: Path, mirror: RunMirror | None, launch: str) -> bool:
    """Return whether the latest training of the run at a path, if there is one, was started by a launch."""
    note = launch_note(path, mirror)
    return note.is_file() and launch in note.read_text(encoding="utf-8", errors="replace").splitlines()


def holds_work_of(path: Path, mirror: RunMirror | None, launch: str) -> bool:
    """As `is_of_launch`, and whether the run has checkpoints, if they are not in the store of a mirror."""
    return is_of_launch(path, mirror, launch) and (mirror is not None or _has_weights(path))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's errors while writing a path into a CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot be written: {error.strerror or error}", place=path) from None


def write_whole(path: Path, text: bytes) -> None:
    """Replace a file; raises CheckpointError."""
    with writing(path), appearing(path) as file:
        file.write(text)


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
