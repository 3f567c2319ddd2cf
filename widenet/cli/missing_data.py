"""The dataset to name where a command line lacks --data."""

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from widenet.training.existing_run import DATA


def suggested_data(words: Sequence[str]) -> str:
    """Suggest the dataset of the first run that a command line names; else that of a run's document.

    Args:
        words: The command line.

    Returns:
        A sentence to append, which begins with a space; nothing if there is no such run or dataset.
    """
    named = [*map(Path, words)]
    with suppress(OSError, ValueError):
        named += [path.parent for path in named if path.is_file()]
    for run in named:
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            data = _data_of(run)
            if data.is_dir():
                name = run if run.name else run.absolute()
                return f" Add --data {shlex.quote(str(data))}, on which {name} was trained."
    return ""


def _data_of(run: Path) -> Path:
    """Return the dataset of a run, which need not exist; raises an error if the directory is no run."""
    named = json.loads((run / "machine.json").read_text(encoding="utf-8"))["data"]
    return run / DATA if (run / DATA).is_dir() else Path(named)
