"""The path of a run: what lies there, who trains it, and how a new run takes the place of an earlier one.

Nothing here loads torch, so that a wrong path is refused at once.

A run that is to be replaced waits in a hidden folder beside the new one until that has a checkpoint. Every
change is one renaming, so a crash at any moment leaves the earlier run at its path or in the hidden folder.
The next training of that path brings it back, unless the new run has weights. The
earlier run is removed only when the new one has weights, and nothing is removed for it but a new run without.
"""

import errno
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from widenet.errors import CheckpointError, DataError, unwritten
from widenet.parallel.launch import is_note_of_launch
from widenet.stores.durable import appearing, force_all_to_disk, force_to_disk, put_in_place
from widenet.stores.fetch import readable
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

VECTORS = "vectors.json"
"""The file with the SHA-256 of each file of vectors that a run begins with, by the name of the weight."""

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
    "evaluations",
    LOCK,
    LAUNCH,
    START,
    TRACKING,
    VECTORS,
    CUT,
}
"""The entries of a run directory, beside a dataset."""

UNFINISHED = re.compile(r"\.(.+)\.(old|\d+|[0-9a-f]+\.partial)")
"""Names of files and folders that are being written or replaced."""


def is_free(path: Path) -> bool:
    """Return whether a run may begin at a path without replacing weights or something else.

    Nothing lies there, or a run without a checkpoint, and perhaps the dataset that its training has cut.
    """
    if not path.is_dir():
        return not path.exists()
    names = {entry.name for entry in path.iterdir()} - {LOCK}
    if all((own := UNFINISHED.fullmatch(name)) and own[1] in _OWN for name in names):
        return True
    return _names(path).issuperset(DOCUMENTS) and _is_begun(path)


def _names(path: Path) -> set[str]:
    """The entries of a directory, without those that a killed process has not finished."""
    return {entry.name for entry in path.iterdir() if UNFINISHED.fullmatch(entry.name) is None}


def _is_begun(path: Path) -> bool:
    """Return whether a directory has nothing but entries of a run without weights."""
    names = _names(path)
    return names <= (_OWN | {DATA} if CUT in names else _OWN) and not _has_weights(path)


def _has_weights(path: Path) -> bool:
    return (path / "model").exists() or any((path / "checkpoints").glob("epoch-*"))


def document_of(run: Path) -> Path:
    """Return the network document of a run's weights: with fitted terms, if there are any."""
    return run / (FITTED if (run / FITTED).is_file() else "network.json")


def check_run(path: Path) -> Path:
    """Return the directory of an existing run, or of a copy of one in a store; raises CheckpointError."""
    path = readable(path, "run")
    if not path.exists():
        raise CheckpointError("does not exist", place=path)
    if is_study(path):
        raise CheckpointError("is a study, not a run", place=path)
    if not (path / "network.json").is_file() or not (path / "fields.json").is_file():
        raise CheckpointError("is not a run: it has no network.json and fields.json", place=path)
    return path


def is_study(path: Path) -> bool:
    """Return whether a path is the directory of a study."""
    return (path / STUDY).is_file()


def busy(path: Path) -> CheckpointError:
    """Return the error for a run that another process is training."""
    return CheckpointError("is being trained by another process", place=path)


def check(path: Path, needed: Iterable[Path], overwrite: bool) -> None:
    """Check that a new run may begin at a path; bring a run back that waits there without a successor.

    Args:
        path: The path.
        needed: Directories that the new run reads, which must not lie in a run that it replaces.
        overwrite: Whether it may replace a run.

    Raises:
        CheckpointError: The path is taken, or belongs to a study.
    """
    if not path.name:
        raise CheckpointError("must be a directory to make, not the current one", option="out")
    study = path if is_study(path) else path.parent
    if is_study(study) and path in (study, study / "best"):
        raise CheckpointError(f"belongs to the study {study}", place=path, option="out")
    if path.is_dir() and is_locked(path):
        raise busy(path)
    if overwrite:
        _check_replaceable(path, needed)
        return
    if waiting(path).exists() and is_free(path):
        path.mkdir(exist_ok=True)
        with locked(path):
            settle(path)
    _check_free(path)


def _check_free(path: Path) -> None:
    """Raise CheckpointError if a path holds something that a new run must not replace."""
    if not is_free(path):
        raise CheckpointError("must be a new path, without resume and overwrite", place=path, option="out")


def _check_replaceable(path: Path, needed: Iterable[Path]) -> None:
    """Raise CheckpointError unless a path is free, or a run with nothing else in its folder."""
    if is_free(path):
        return
    if not all((path / name).is_file() for name in DOCUMENTS):
        raise CheckpointError("must replace a run that widenet made", place=path, option="overwrite")
    other = next((name for name in sorted(_names(path)) if name not in _OWN | {DATA}), None)
    if other is not None:
        raise CheckpointError("must replace nothing but a run", place=path, option="overwrite", value=other)
    if (path / DATA).exists():
        from widenet.data.writer import check_replaceable  # loads Arrow

        try:
            check_replaceable(path / DATA)
        except DataError as error:
            raise CheckpointError(str(error)) from None
    for folder in needed:
        if folder.resolve().is_relative_to(path.resolve()):
            rule = "must not replace what the new run reads"
            raise CheckpointError(rule, place=path, option="overwrite", value=str(folder))


@contextmanager
def begun(
    path: Path,
    fill: Callable[[Path], None],
    needed: Iterable[Path],
    overwrite: bool,
    data: Path | None = None,
    is_whole: bool = False,
) -> Iterator[None]:
    """Make a run at a path, locked within the block.

    This replaces a run that ended before its first checkpoint, or with `overwrite` any run, which comes back
    if the block ends without weights.

    Args:
        path: The path.
        fill: Called with the new folder, to put the run's first files there.
        needed: See `check`.
        overwrite: See `check`.
        data: The dataset of the new run: that in the folder of `hidden`, which becomes the run; or that of a
            replaced run, which it keeps; or another one.
        is_whole: Whether nothing stays if the block fails, since nobody resumes the run.

    Raises:
        CheckpointError: The path is taken, or cannot be written.
    """
    check(path, needed, overwrite)
    is_held, new = data == beside(path) / DATA, beside(path)
    with nullcontext() if is_held else hidden(path), ExitStack() as stack:  # its lock survives the renaming
        try:
            fill(new)
            force_all_to_disk(new)
            if overwrite:
                set_aside(path, needed)
            put(new, path, data is not None and data.resolve() == (path / DATA).resolve())
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                _check_free(path)
                raise busy(path) from None
            raise CheckpointError(unwritten(path, error)) from None
        stack.callback(settle, path)
        try:
            yield
        except BaseException:
            if is_whole:
                shutil.rmtree(path, ignore_errors=True)
            raise


def waiting(path: Path) -> Path:
    """The hidden folder in which a run waits until its successor at `path` has a checkpoint."""
    return path.with_name(f".{path.name}.replaced")


def set_aside(path: Path, needed: Iterable[Path] = ()) -> None:
    """Move the run at a path into its hidden folder; do nothing if the path is free.

    Raises:
        CheckpointError: It may not be replaced, or is being trained.
        OSError: The system refuses.
    """
    if is_free(path):
        return
    with locked(path):
        _check_replaceable(path, needed)
        if waiting(path).exists() and not _has_weights(path):
            _discard(path, path)
        else:
            drop(path)
            path.rename(waiting(path))
        force_to_disk(path.parent)


def settle(path: Path) -> None:
    """Bring a waiting run back if its successor has no weights, and drop it if it has some.

    Both stay where they are if something else is at the path. The caller holds the lock of the
    successor.

    Raises:
        CheckpointError: The system refuses.
    """
    if not waiting(path).exists():
        return
    with writing(path):
        if _has_weights(path):
            drop(path)
        elif is_free(path):
            _discard(path, path)
            waiting(path).rename(path)
            force_to_disk(path.parent)


def drop(path: Path) -> None:
    """Remove the waiting run, if there is one."""
    if waiting(path).exists():
        _discard(waiting(path), path)


def _discard(folder: Path, path: Path) -> None:
    """Remove a folder of the run at a path at once: what a crash leaves of it is never brought back."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a directory from another one at its path; None if there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def put(new: Path, path: Path, keeps_data: bool = False) -> None:
    """Move a new run to its path; replace a run there that has no checkpoint and is not being trained.

    Args:
        new: The new run.
        path: Where it goes.
        keeps_data: Whether the new run trains on the dataset that a replaced run was given.

    Raises:
        CheckpointError: The path is taken.
        OSError: The system refuses.
    """
    if not path.exists():
        new.rename(path)
        force_to_disk(path.parent)
        return
    with locked(path):
        _check_free(path)  # another training of it may have begun and ended meanwhile
        # In this order: a dataset beside `CUT` may be removed with its run.
        moved = [name for name in (CUT, DATA) if keeps_data and (path / name).exists()]
        for name in moved:
            (path / name).rename(new / name)
        try:
            put_in_place(new, path)
        except OSError:
            for name in moved:
                (new / name).rename(path / name)
            raise


def recover(folder: Path) -> None:
    """Clean up a folder after a crash: restore directories that were being replaced, remove unfinished files.

    The caller must lock the folder against other writers.
    """
    for path in sorted(folder.glob(".*")):
        match = UNFINISHED.fullmatch(path.name)
        if match is None:
            continue
        if match[2] == "old" and not (folder / match[1]).exists():
            path.rename(folder / match[1])
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def locked(path: Path, run: Path | None = None) -> Iterator[IO[str]]:
    """Lock a run directory against other trainings; the lock ends with the process at the latest.

    Yields the file that is locked.

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
            except (BlockingIOError, FileNotFoundError):
                raise busy(run or path) from None
        if not _holds(path, file):
            raise busy(run or path)
        yield file


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


def is_locked(path: Path) -> bool:
    """Return whether a process is training a run; never disturbs a training."""
    try:
        with (path / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
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
    with locked(folder, path) as lock:
        try:
            with writing(path):
                for entry in folder.iterdir():
                    if entry.is_dir() and not entry.is_symlink():
                        shutil.rmtree(entry)
                    elif entry.name != LOCK:
                        entry.unlink()
            yield folder
        finally:
            if _holds(folder, lock):
                shutil.rmtree(folder, ignore_errors=True)


def beside(path: Path) -> Path:
    """The hidden folder in which a run, its dataset, or a study is made; see `hidden`."""
    return path.with_name(f".{path.name}.unfinished")


def take(path: Path) -> None:
    """Move the dataset that was made anew for a run into its folder; raises CheckpointError."""
    with writing(path):
        shutil.rmtree(path / DATA, ignore_errors=True)
        for name in (CUT, DATA):  # in this order: a dataset beside `CUT` may be removed with its run
            (beside(path) / name).rename(path / name)


def launch_note(path: Path, mirror: RunMirror | None) -> Path:
    """The file that names the torchrun launch that trains a run: in its directory, or beside a mirror's."""
    return path / LAUNCH if mirror is None else mirror.launch


def holds_work_of(path: Path, mirror: RunMirror | None, launch: str) -> bool:
    """Return whether a path is a run with checkpoints whose latest training was started by this launch.

    A run in a store may have its checkpoints there: its latest training here is all that counts.
    """
    note = launch_note(path, mirror)
    if not note.is_file() or not (mirror is not None or _has_weights(path)):
        return False
    return is_note_of_launch(note.read_text(encoding="utf-8", errors="replace"), launch)


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
