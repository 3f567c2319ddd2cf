"""The whole page of a report, and its file."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from widenet.arguments import typed
from widenet.data.dataset import Dataset
from widenet.errors import OptionError
from widenet.pictures.html import Html, joined, tag
from widenet.regular_files import check_new
from widenet.report import sections
from widenet.report.recommendations import sampled
from widenet.report.several_runs import (
    curves_over_each_other,
    differences,
    final_numbers,
    paired_differences,
)
from widenet.report.subject import Subject
from widenet.runs import Model
from widenet.stores.durable import appearing
from widenet.stores.fetch import readable
from widenet.stores.uri import is_uri, shown
from widenet.training.run_directory import RunDirectory


def page(subjects: Sequence[Subject]) -> Html:
    """The HTML of a report about one or more runs; it has no script and loads nothing."""
    return _of_one(subjects[0]) if len(subjects) == 1 else _of_several(subjects)


def _of_one(subject: Subject) -> Html:
    parts = [
        sections.summary(subject),
        sections.curves_section(subject),
        sections.evaluations_section(subject),
        sections.network_section(subject),
        sections.norms_section(subject),
        sections.recommendations_section(subject),
        sections.data_section(subject),
        sections.time_section(subject),
        sections.numbers_section(subject),
        sections.documents_section(subject),
        sections.machine_section(subject),
    ]
    return whole(subject.name, subject.run.network.name, parts)


def _of_several(subjects: Sequence[Subject]) -> Html:
    parts = [
        final_numbers(subjects),
        paired_differences(subjects),
        curves_over_each_other(subjects),
        differences(subjects),
    ]
    return whole(f"{len(subjects)} runs", ", ".join(subject.name for subject in subjects), parts)


def whole(title: str, below: str, parts: Sequence[Html]) -> Html:
    """Return a page of some sections, with a title and a line below it."""
    style = Html((Path(__file__).parent / "page.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{title} \u2013 widenet"),
        tag("style", style),
    )
    heading = tag("header", tag("h1", title), tag("p", below))
    html = tag("html", head, tag("body", tag("main", heading, *parts)), lang="en")
    return joined([Html("<!doctype html>\n"), html, Html("\n")])


FILE_NAME = "report.html"

_HEAD_BYTES = 2**16
_BEGINNING = re.compile(r"<!doctype html>\n<html lang=\"en\"><head>[^\n]*<title>[^<]* \u2013 widenet</title>")


@typed
def write_report(
    runs: Model | str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    data: Dataset | str | Path | None = None,
    recommendations: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write an HTML report about a run, or a comparison of several runs, and return its path.

    Several runs are compared by their logs and documents only. If the model belongs to a group of processes,
    all must call this; one of them writes.

    Args:
        runs: A run directory, a model, or several run directories.
        out: The file to write. None replaces report.html in the run directory, or for several runs the report
            in the current directory.
        data: The dataset, for its facts and for examples of recommendations. None uses the training's dataset
            if it is still there and unchanged.
        recommendations: Whether to compute recommendations of a single run; otherwise no weights are read.
        overwrite: Whether to replace an earlier report at `out`.

    Warns:
        UserWarning: The dataset of the training is gone, or has changed.

    Raises:
        CheckpointError: A run is missing or damaged.
        DataError: The dataset is missing or damaged.
        FitError: The dataset does not match the run.
        OptionError: There is no run, or `out` exists and may not be replaced.
        OSError: The file cannot be written.
    """
    model = runs if isinstance(runs, Model) else None
    if isinstance(runs, Model):
        paths = [runs.run.path]
    else:
        paths = [Path(runs)] if isinstance(runs, str | os.PathLike) else [Path(path) for path in runs]
    if not paths:
        raise OptionError("a report needs a run; got none. Name a run directory.")
    if out is None and any(is_uri(path) for path in paths):
        raise OptionError("`out` must name a local file for the report of a run in a store. Name one.")
    names = _names(paths)
    if model is None:
        paths = [readable(path, "run") for path in paths]
    if out is not None and _is_taken(Path(out), model):
        check_new(Path(out), overwrite, "a report", _is_report)
    if out is None and len(paths) > 1:
        check_new(Path(FILE_NAME), True, "a report", _is_report)
    if len(paths) == 1:
        target = paths[0] / FILE_NAME if out is None else Path(out)
        subjects = [_alone(names[0], paths[0], model, data, recommendations)]
    else:
        target = Path(FILE_NAME if out is None else out)
        subjects = [Subject(name, RunDirectory.open(path)) for name, path in zip(names, paths, strict=True)]
    if model is None or model.network.exchange.leads:
        _write(target, page(subjects))
    return target


def _is_taken(out: Path, model: Model | None) -> bool:
    """Whether `out` exists; with a model, the leader's answer in all processes of its group."""
    return out.exists() if model is None else bool(model.network.exchange.collect(out.exists(), "report")[0])


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return _BEGINNING.match(file.read(_HEAD_BYTES).decode("utf-8", errors="replace")) is not None


def _alone(
    name: str, path: Path, model: Model | None, data: Dataset | str | Path | None, recommendations: bool
) -> Subject:
    run = RunDirectory.open(path) if model is None else model.run
    dataset = _dataset(run, data)
    if dataset is None:
        subject = Subject(name, run)
        if model is None or model.network.exchange.leads:
            # Frames: here, the function, its wrapper, the caller.
            warnings.warn(f"{run.path}: {subject.without_data} Name it with `data`.", stacklevel=4)
        return subject
    has_weights = recommendations and (
        model is not None or (path / "model").exists() or run.latest() is not None
    )
    sample = sampled(model or Model.load(path, "cpu"), dataset) if has_weights else None
    return Subject(name, run, dataset.path, dataset.manifest, sample)


def _dataset(run: RunDirectory, data: Dataset | str | Path | None) -> Dataset | None:
    """Open the dataset `data`, or that of the training if it is still there for None.

    Raises:
        FitError: `data` does not match the run.
    """
    if data is None:
        return run.dataset()
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    run.check_dataset(dataset)
    return dataset


def _names(paths: Sequence[Path]) -> list[str]:
    """The names of the directories; whole paths for those that share a name."""
    names = [path.resolve().name for path in paths]
    times = Counter(names)
    return [name if times[name] == 1 else shown(path) for name, path in zip(names, paths, strict=True)]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing(path) as file:
        file.write(text.encode("utf-8", errors="xmlcharrefreplace"))
