"""The hidden folder beside a run or a study, in which what it begins with is made."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from widenet.training.checkpoint import writing
from widenet.training.existing_run import LOCK
from widenet.training.run_path import locked


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
