"""The runs below a folder: where each stands, its kept metric, and how their documents differ."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from widenet.arguments import typed
from widenet.data.manifest import FILE_NAME as DATASET
from widenet.errors import OptionError, WidenetError
from widenet.report.subject import Subject
from widenet.runs.run_log import diverged
from widenet.spec.document import leaves_of
from widenet.training.run_directory import RunDirectory, fitted_network
from widenet.training.run_path import TRIALS, is_locked, is_study

State = Literal["training", "finished", "interrupted", "unsaved"]
Order = Literal["metric", "name", "state", "epochs", "time", "newest"]


@dataclass(frozen=True)
class ListedRun:
    """One run of a table.

    Attributes:
        name: Path of the run below the folder.
        path: Path of its directory.
        state: "training": a process trains it now. "finished": it has its final weights. "interrupted": it
            can be resumed from a checkpoint. "unsaved": it ended before its first checkpoint. A directory
            does not tell why a training ended.
        epochs: Number of finished epochs.
        epochs_asked: Number of epochs that training.json asks for.
        metric: The metric that decides which epoch is best; None without an evaluation.
        part: The part of the dataset that it was measured on; None without an evaluation.
        value: The metric in the epoch whose weights the run keeps; None if it was not measured, or the
            model was changed since.
        kept_epoch: The epoch whose weights the run keeps; None before the first epoch has ended.
        fingerprint: SHA-256 of the final weights; None if the run has none, or an early version saved them.
        form: What was changed after its training, in words; None if nothing was.
        made_of: The run that it was made of then; None in runs of early versions.
        seconds: Seconds of all steps; None if it was made of another run.
        changed: When the run was last written to, in UTC.
        differences: Values at the places where the documents of the listed runs differ, such as
            `training.optimizer.learning_rate`.
        warning: A sentence about a loss that went far up; None if it did not.
    """

    name: str
    path: Path
    state: State
    epochs: int
    epochs_asked: int
    metric: str | None
    part: str | None
    value: float | None
    kept_epoch: int | None
    fingerprint: str | None
    form: str | None
    made_of: str | None
    seconds: float | None
    changed: datetime
    differences: dict[str, Any]
    warning: str | None


@dataclass(frozen=True)
class Listing:
    """The runs below a folder.

    Attributes:
        runs: The runs, in order.
        problems: Folders that are no run, or cannot be read as one, with the reason.
    """

    runs: list[ListedRun]
    problems: dict[Path, str]


@typed
def list_runs(folder: str | Path = "runs", sort: Order = "metric") -> Listing:
    """List the runs below a folder.

    Damaged runs and folders without a run are among the problems of the result. Datasets, hidden folders and
    links to folders without a run are ignored. No weights are read.

    Args:
        folder: The folder; it may be a run itself.
        sort: "metric" keeps runs with the same metric and part together, the largest value first.
            "epochs" and "time" begin with the largest, "newest" with the run that changed last, "name" and
            "state" with the first of the alphabet.

    Returns:
        The runs in order, and the problems.

    Raises:
        OptionError: The folder does not exist, or the order is unknown.
    """
    folder = Path(folder)
    paths, problems = found(folder)
    read = []
    for name, path in paths.items():
        try:
            subject = Subject(name, RunDirectory.open(path))
            read.append((listed(subject), documents_of(subject)))
        except (WidenetError, OSError) as error:
            problems[path] = str(error)
    chosen = differing([documents for _, documents in read])
    runs = [replace(run, differences=values) for (run, _), values in zip(read, chosen, strict=True)]
    return Listing(sorted(runs, key=_KEYS[sort]), problems)


def found(folder: Path) -> tuple[dict[str, Path], dict[Path, str]]:
    """Return the runs in a folder and below it by name, and the folders that hold something else, with why.

    Raises:
        OptionError: The folder does not exist.
    """
    if not folder.is_dir():
        raise OptionError(f"{folder} is not a folder. Train first, or name a folder that holds runs.")
    problems: dict[Path, str] = {}
    paths = {
        path.relative_to(folder).as_posix() if path != folder else path.resolve().name: path
        for path in _runs_below(folder, problems)
    }
    return paths, problems


def _runs_below(folder: Path, problems: dict[Path, str]) -> Iterator[Path]:
    """Yield the runs in a folder and below it; note folders that hold something else."""
    if (folder / "network.json").is_file():
        yield folder
        return
    try:
        within = folder / TRIALS if is_study(folder) else folder
        inner = sorted(path for path in within.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError as error:
        problems[folder] = f"{folder} cannot be read: {error.strerror or error}."
        return
    for path in inner:
        if (path / "network.json").is_file():
            yield path
        elif not path.is_symlink() and not (path / DATASET).is_file():
            inside: dict[Path, str] = {}
            below = list(_runs_below(path, inside))
            yield from below
            problems.update(inside if below else {path: f"{path} is not a run: it has no network.json."})


def _changed(path: Path) -> datetime:
    """Return when a run's log or documents were written."""
    files = [path / name for name in ("network.json", "log.jsonl") if (path / name).is_file()]
    return datetime.fromtimestamp(max(file.stat().st_mtime for file in files), UTC)


def documents_of(subject: Subject) -> dict[str, Any]:
    """Return what may differ between runs: the two documents, and the path of the dataset."""
    run = subject.run
    documents = {
        "network": (fitted_network(subject.final) or run.network).model_dump(mode="json"),
        "training": run.training.model_dump(mode="json"),
    }
    return documents | ({"data": run.machine["data"]} if "data" in run.machine else {})


def listed(subject: Subject) -> ListedRun:
    """Return the facts of one run by itself, without differences; raises WidenetError, OSError."""
    run, kept, evaluation = subject.run, subject.kept, subject.run.training.evaluation
    value = None if subject.metric is None else subject.measured.get(subject.metric)
    state: State = "interrupted"
    if (run.path / "model").is_dir():
        state = "finished"
    elif is_locked(run.path):
        state = "training"
    elif not any((run.path / "checkpoints").glob("epoch-*")):
        state = "unsaved"
    return ListedRun(
        name=subject.name,
        path=run.path,
        state=state,
        epochs=subject.last.get("epoch", 0),
        epochs_asked=run.training.epochs,
        metric=subject.metric,
        part=None if evaluation is None else evaluation.part,
        value=float(value) if isinstance(value, int | float) and math.isfinite(value) else None,
        kept_epoch=kept.get("epoch"),
        fingerprint=subject.final.fingerprint,
        form=subject.final.form,
        made_of=subject.final.made_of,
        seconds=subject.seconds,
        changed=_changed(run.path),
        differences={},
        warning=diverged(run.training, subject.records),
    )


def _by_metric(run: ListedRun) -> tuple[Any, ...]:
    return run.value is None, run.metric or "", run.part or "", -(run.value or 0.0), run.name


_KEYS: dict[Order, Callable[[ListedRun], tuple[Any, ...]]] = {
    "metric": _by_metric,
    "name": lambda run: (run.name,),
    "state": lambda run: (run.state, run.name),
    "epochs": lambda run: (-run.epochs, run.name),
    "time": lambda run: (-(run.seconds or 0.0), run.name),
    "newest": lambda run: (-run.changed.timestamp(), run.name),
}


_ABSENT = object()


def differing(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return, for each document, its values at the places where the documents differ.

    A place is a dotted path such as `optimizer.learning_rate` or `layers[taste].units`. A document that lacks
    a place lacks it in the result, too. Places stand in the order of their first occurrence.
    """
    flat = [dict(leaves_of(document)) for document in documents]
    places = dict.fromkeys(place for document in flat for place in document)
    chosen = [place for place in places if len({repr(document.get(place, _ABSENT)) for document in flat}) > 1]
    return [{place: document[place] for place in chosen if place in document} for document in flat]


def as_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False)
