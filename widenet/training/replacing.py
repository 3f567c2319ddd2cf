"""Replacing a run: the earlier one waits in a hidden folder beside the new one until that has a checkpoint.

Every change is one renaming, so a crash at any moment leaves the earlier run at its path or in the hidden
folder. The next training of that path brings it back, unless the new run has weights or a dataset lies
there. The earlier run is removed only when the new one has weights, and nothing is removed for it but a new
run without any.
"""

import secrets
import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from widenet.data.writer import check_replaceable as check_dataset
from widenet.errors import CheckpointError, DataError
from widenet.stores.durable import force_to_disk
from widenet.training.checkpoint import writing
from widenet.training.existing_run import (
    CUT,
    DATA,
    LOCK,
    busy,
    check_not_of_study,
    is_locked,
    taken,
    waiting,
)
from widenet.training.publication import UNFINISHED
from widenet.training.run_path import WITHOUT_WEIGHTS, check_free, is_taken, locked

_DOCUMENTS = ("network.json", "training.json", "fields.json")
_OWN = WITHOUT_WEIGHTS | {"best", "model", "report.html", "evaluations", DATA}
"""The entries of a run directory."""


def check(path: Path, needed: Iterable[Path], overwrite: bool) -> None:
    """Raise CheckpointError unless a new run may begin at a path; see `check_replaceable`."""
    check_not_of_study(path)
    if overwrite:
        check_replaceable(path, needed)
    else:
        bring_back(path)
        check_free(path)


def check_whole(path: Path, needed: Iterable[Path], overwrite: bool) -> None:
    """As `check`, for a run that is written whole, so that nobody resumes it."""
    if overwrite:
        check_replaceable(path, needed)
        return
    bring_back(path)
    if is_taken(path):
        raise taken(path)


def check_replaceable(path: Path, needed: Iterable[Path] = ()) -> None:
    """Raise CheckpointError unless a path is free, or a run that may be replaced.

    Args:
        path: The path.
        needed: Directories that the new run reads, which must not lie in the run.
    """
    if is_taken(path):
        _check_contents(path, needed)
        if is_locked(path):
            raise busy(path)


def _check_contents(path: Path, needed: Iterable[Path]) -> None:
    if not path.is_dir() or not all((path / name).is_file() for name in _DOCUMENTS):
        raise CheckpointError("is no run that widenet made", place=path, option="overwrite")
    other = next((name for name in sorted(_names(path)) if name not in _OWN), None)
    if other is not None:
        raise CheckpointError("must replace nothing but a run", place=path, option="overwrite", value=other)
    if (path / DATA).exists():
        try:
            check_dataset(path / DATA)
        except DataError as error:
            raise CheckpointError(str(error)) from None
    for folder in needed:
        if folder.resolve().is_relative_to(path.resolve()):
            rule = "must not replace what the new run reads"
            raise CheckpointError(rule, place=path, option="overwrite", value=str(folder))


def set_aside(path: Path, needed: Iterable[Path] = ()) -> None:
    """Move the run at a path into its hidden folder; do nothing if the path is free.

    Raises:
        CheckpointError: It may not be replaced, or is being trained.
        OSError: The system refuses.
    """
    if not is_taken(path):
        return
    _check_contents(path, needed)
    with locked(path):
        _check_contents(path, needed)  # somebody may have put something there meanwhile
        if waiting(path).exists() and _is_only_begun(path):
            _remove(path)
        else:
            drop(path)
            path.rename(waiting(path))
        force_to_disk(path.parent)


def bring_back(path: Path) -> None:
    """Bring a waiting run back to its path, if a killed training has left it without a successor.

    Raises:
        CheckpointError: The successor is being trained, or a dataset is in the way.
    """
    if not waiting(path).exists() or not _is_only_begun(path):
        return
    if _holds_dataset_of_others(path):
        rule = f"holds a dataset, and the run that was there before is {waiting(path)}"
        raise CheckpointError(rule, place=path)
    # A lock is a file of its own, which a folder without a run must not get.
    with locked(path) if (path / _DOCUMENTS[0]).exists() else nullcontext():
        settle(path)


def settle(path: Path) -> bool:
    """Bring a waiting run back if its successor has no weights, and drop it if it has some.

    Both stay where they are if something else is at the path, or a dataset with the successor. The caller
    holds the lock of the successor.

    Returns:
        Whether the waiting run is back.

    Raises:
        CheckpointError: The system refuses.
    """
    if not waiting(path).exists():
        return False
    with writing(path):
        if _has_weights(path):
            drop(path)
            return False
        if not _is_only_begun(path) or _holds_dataset_of_others(path):
            return False
        _remove(path)
        waiting(path).rename(path)
        force_to_disk(path.parent)
    return True


def drop(path: Path) -> None:
    """Remove the waiting run, if there is one."""
    if waiting(path).exists():
        # Renamed first: what a crash leaves of it is never brought back.
        old = path.with_name(f".{path.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        waiting(path).rename(old)
        shutil.rmtree(old, ignore_errors=True)


def _names(path: Path) -> set[str]:
    """The entries of a directory, without those that a killed process has not finished."""
    return {entry.name for entry in path.iterdir() if UNFINISHED.fullmatch(entry.name) is None}


def _remove(path: Path) -> None:
    """Remove what is at a path, if there is anything, so that it disappears at once."""
    if path.exists():
        removed = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        path.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


def identity(path: Path) -> tuple[int, int] | None:
    """What tells a directory from another one at its path; None if there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _has_weights(path: Path) -> bool:
    return (path / "model").exists() or any((path / "checkpoints").glob("epoch-*"))


def _holds_dataset_of_others(path: Path) -> bool:
    """Whether a path holds a dataset that no training has made for its run."""
    return (path / DATA).exists() and not (path / CUT).exists()


def _is_only_begun(path: Path) -> bool:
    """Whether a path is missing, empty, a dataset alone, or a new run without weights."""
    if not path.exists():
        return True
    if not path.is_dir() or _has_weights(path):
        return False
    names = _names(path) - {LOCK}
    return not names or names == {DATA} or set(_DOCUMENTS) <= names <= _OWN
