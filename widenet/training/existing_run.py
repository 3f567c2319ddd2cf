"""Checks that a directory is a run, or none, without torch: a wrong path is refused at once."""

import fcntl
from pathlib import Path

from widenet.errors import CheckpointError
from widenet.stores.fetch import readable

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

_OF_A_RUN = "fields.json", "vocabulary", "checkpoints", "model"
"""Of what a run holds beside its documents, and no other folder with documents does."""


def document_of(run: Path) -> Path:
    """Return the network document of a run's weights: with fitted terms, if there are any."""
    return run / (FITTED if (run / FITTED).is_file() else "network.json")


def check_run(path: Path) -> None:
    """Raise CheckpointError if a path is not the directory of a run; copies one in a store."""
    path = readable(path, "run")
    if not path.exists():
        waits = f": the run that was to be replaced is {waiting(path)}" if waiting(path).exists() else ""
        raise CheckpointError(f"does not exist{waits}", place=path)
    if is_study(path):
        raise CheckpointError("is a study, not a run", place=path)
    if not (path / "network.json").is_file():
        raise CheckpointError("is not a run: it has no network.json", place=path)
    if not any((path / name).exists() for name in _OF_A_RUN):
        raise CheckpointError("holds documents, not a run", place=path)


def is_study(path: Path) -> bool:
    """Return whether a path is the directory of a study."""
    return (path / STUDY).is_file()


def check_not_of_study(path: Path) -> None:
    """Raise CheckpointError if a path is a study, or the folder of its best documents."""
    study = path if is_study(path) else path.parent
    if is_study(study) and path in (study, study / "best"):
        raise CheckpointError(f"belongs to the study {study}", place=path, option="out")


def check_no_weights(path: Path) -> None:
    """Raise CheckpointError if no run may begin at a path, whose run or study nothing must replace."""
    check_not_of_study(path)
    if path.is_dir() and is_locked(path):
        raise busy(path)
    if (path / "model").is_dir() or (path / "checkpoints" / "latest").exists():
        raise taken(path)


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


def busy(path: Path) -> CheckpointError:
    """Return the error for a run that another process is training."""
    return CheckpointError("is being trained by another process", place=path)


def taken(path: Path) -> CheckpointError:
    """Return the error for a new run at a path that holds something already."""
    return CheckpointError("must be a new path, without resume and overwrite", place=path, option="out")


def waiting(path: Path) -> Path:
    """The hidden folder in which a run waits until its successor at `path` has a checkpoint."""
    return path.with_name(f".{path.name}.replaced")
