"""From interactions to a trained model in one call, with the usual documents."""

import secrets
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from widenet.arguments import typed
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.errors import CheckpointError, OptionError
from widenet.parallel.group import num_processes
from widenet.runs.cutting import making
from widenet.runs.model import Model
from widenet.runs.progress import IngestReport, TrainingReport
from widenet.runs.training import train
from widenet.training.checkpoint import writing
from widenet.training.cut import Cut
from widenet.training.existing_run import DATA
from widenet.training.replacing import check_replaceable, identity


@typed
def fit(
    interactions: Any,
    out: str | Path,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    min_value: float | None = None,
    time: str | None = None,
    items: Any = None,
    items_id: str | None = None,
    items_title: str | None = None,
    titles: Any = None,
    title_id: str | None = None,
    title: str | None = None,
    device: str | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Model:
    """Train a recommender on interactions with the usual documents, and return it.

    It makes a dataset, sets a validation part aside, and trains until three evaluations are not better. It
    keeps the weights of the best one. The run directory holds the dataset too, in its folder
    `data`, and all else is as after `ingest`, `split` and `train`. `Model.load(out)` opens the model again.

    Ctrl-C saves a checkpoint; `train(None, None, out + "/data", out, resume=True)` continues from it.

    Args:
        interactions: A path, a pandas, Polars or Arrow table, a SciPy matrix, a dictionary of columns, a list
            of tuples (user, item, and perhaps value and time), or a list of sources; see `ingest`.
        out: The run directory to make.
        user: Column with the user. Default: guessed from the names of the columns.
        item: Column with the item. Default: guessed likewise.
        value: Column with a number for each interaction, such as a rating, that the network reads.
        min_value: Keep only interactions with at least this value, and no values. Default column: guessed.
        time: Column with the time. Each user's newest item is then the validation part, instead of a random
            tenth of each user's items.
        items: A file or a table of items with their attributes, and perhaps titles; see `ingest`.
        items_id: Column of `items` with the id. Default: guessed.
        items_title: Column of `items` with the title. Default: guessed.
        titles: A file or a table with ids and titles of items.
        title_id: Column of `titles` with the id. Default: guessed.
        title: Column of `titles` with the title. Default: guessed.
        device: "cpu" or "cuda". Default: cuda if there is a device.
        overwrite: Whether to replace an earlier run at `out`, once the new one has a checkpoint.
        quiet: Whether to show no progress.

    Returns:
        The trained model.

    Raises:
        CheckpointError: `out` exists already, or cannot be made.
        DataError: The interactions break a rule; the message names place, column, rule and value.
        OptionError: An argument is wrong.
    """
    path = Path(out)
    if num_processes() > 1:
        raise OptionError("fit runs in one process")
    is_taken = _is_taken(path, overwrite)
    columns = {"user": user, "item": item, "value": value, "min_value": min_value, "time": time}
    columns |= {"items": items, "items_id": items_id, "items_title": items_title}
    columns |= {"titles": titles, "title_id": title_id, "title": title}
    report, new, earlier = TrainingReport(quiet), _missing(path), identity(path)
    try:
        with ExitStack() as stack:
            data = _dataset(interactions, path, report, columns, stack)
            return train(None, None, data, path, device=device, report=report, overwrite=is_taken)
    except BaseException as error:
        has_begun = (path / "checkpoints" / "latest").is_file() and identity(path) != earlier
        if not has_begun and not is_taken:
            _remove(path, new)
        elif has_begun and isinstance(error, KeyboardInterrupt):
            report.stop()
            chosen = "" if device is None else f", device={device!r}"
            report.say(
                f"Stopped; {path} holds a checkpoint. Continue with widenet.train(None, None,"
                f" {str(path / DATA)!r}, {str(path)!r}, resume=True{chosen})."
            )
        raise
    finally:
        report.stop()


def _is_taken(path: Path, overwrite: bool) -> bool:
    """Whether there is something at a path; raises CheckpointError if it must not or cannot be replaced."""
    is_taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    if is_taken and not overwrite:
        raise CheckpointError("exists already", place=path)
    check_replaceable(path)
    return is_taken


def _missing(path: Path) -> list[Path]:
    """A path and the folders around it that do not exist yet, innermost first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def _remove(path: Path, new: list[Path]) -> None:
    """Empty a directory, then remove those of the new folders that are empty; whatever resists stays."""
    for entry in path.iterdir() if path.is_dir() else ():
        shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
    for folder in new:
        with suppress(OSError):
            folder.rmdir()


def _dataset(
    interactions: Any, path: Path, report: TrainingReport, columns: Mapping[str, Any], stack: ExitStack
) -> Dataset:
    """Make the dataset of a run in the folder from where the run takes it, with a validation part if it can.

    Args:
        interactions: The interactions.
        path: The run.
        report: Shows the progress.
        columns: Arguments of `ingest`.
        stack: Removes what the run has not taken.
    """
    folder = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with writing(path):
        folder.mkdir(parents=True)
    try:
        with IngestReport(report.quiet) as progress:
            whole = ingest(
                interactions,
                folder / DATA,
                keep_times=columns["time"] is not None,
                on_progress=progress.phase,
                on_rows=progress.rows,
                **columns,
            )
        cut = Cut.of(whole, "items")
        made = stack.enter_context(making(path, cut))
        cut.make(whole, made)
        if not cut.options:
            whole.path.rename(made / DATA)
        return Dataset.open(made / DATA)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
