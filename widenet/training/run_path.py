"""The path of a run: whether it is free, who trains there, and what killed trainings have left beside it."""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from widenet.checkpoint import writing
from widenet.durable import force_to_disk, put_in_place
from widenet.errors import CheckpointError

LAUNCH, START = ".torchrun", "start"
"""The files that name the launch of torchrun that trains a run, and the run with whose weights it began."""

_WITHOUT_WEIGHTS = {
    "network.json",
    "training.json",
    "fields.json",
    "vocabulary",
    "log.jsonl",
    "machine.json",
    "tensorboard",
    "checkpoints",
    ".lock",
    LAUNCH,
    START,
}
"""What a run directory may hold before its first checkpoint."""


def check_free(path: Path) -> None:
    """Raise CheckpointError where a path holds something that no new run may replace."""
    if _is_taken(path):
        remedy = (
            "Go on with `resume=True`, or choose another `out`."
            if (path / "network.json").exists()
            else "Choose another `out`."
        )
        raise CheckpointError(f"{path} exists already. {remedy}")


def check_finished(start: Path) -> None:
    """Raise CheckpointError where a run has no finished model."""
    if not (start / "model").is_dir():
        raise CheckpointError(
            f"{start} holds no finished model to start from. Name a run that has ended, or import one."
        )


def holds_work_of(path: Path, launch: str) -> bool:
    """Whether a path is a run that a training may go on with, not begin anew, and whose latest training
    was of this launch.
    """
    if not (path / "network.json").is_file() or _holds_no_work(path):
        return False
    return (path / LAUNCH).is_file() and (path / LAUNCH).read_text(encoding="utf-8").partition("\n")[
        0
    ] == launch


def put(beside: Path, path: Path) -> None:
    """Give a new run its name; a run without work that has it goes, once nobody trains it.

    Raises CheckpointError, OSError.
    """
    if _holds_no_work(path):
        with locked(path):
            check_free(path)  # another training of it may have begun and ended meanwhile
            put_in_place(beside, path)
    else:
        beside.rename(path)  # which takes the place of an empty directory, and of no other
        force_to_disk(path.parent)


def drop_unfinished(path: Path) -> None:
    """Remove what was beside a run when its beginning was killed; not what another process is making now.

    Raises OSError.
    """
    name = re.compile(rf"\.{re.escape(path.name)}\.(old|[0-9a-f]+)")
    for left in path.parent.iterdir():
        with suppress(FileNotFoundError, CheckpointError):  # renamed meanwhile, or at work
            if (
                name.fullmatch(left.name)
                and left.is_dir()
                and {found.name for found in left.iterdir()} <= _WITHOUT_WEIGHTS
            ):
                with locked(left):
                    shutil.rmtree(left)


def busy(path: Path) -> CheckpointError:
    """What to raise where another training is at work."""
    return CheckpointError(
        f"{path} is being trained by another process. Wait for it, or choose another `out`."
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other trainings out of a run directory; raises CheckpointError where one is at work.

    It ends with the process at the latest.
    """
    with ExitStack() as stack:
        with writing(path):
            try:
                file = stack.enter_context((path / ".lock").open("w"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(file.fileno()), (path / ".lock").stat()):
                    raise busy(path)
            except (BlockingIOError, FileNotFoundError):
                raise busy(path) from None
        yield


def _is_taken(path: Path) -> bool:
    return path.exists() and not _holds_no_work(path) and (not path.is_dir() or any(path.iterdir()))


def _holds_no_work(path: Path) -> bool:
    """Whether a directory is a run that was never saved: what a training leaves that fails before its
    first checkpoint.
    """
    if not (path / "network.json").is_file() or any((path / "checkpoints").glob("epoch-*")):
        return False
    return {found.name for found in path.iterdir()} <= _WITHOUT_WEIGHTS
