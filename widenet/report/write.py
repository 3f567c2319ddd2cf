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
)
from widenet.report.subject import Subject
from widenet.runs import Model
from widenet.stores.durable import appearing
from widenet.stores.folders import readable
from widenet.stores.uri import is_uri, shown
from widenet.training.run_directory import RunDirectory


def page(subjects: Sequence[Subject]) -> Html:
    """The HTML of a report about one or more runs; it has no script and loads nothing."""
    if len(subjects) > 1:
        names, of_several = ", ".join(subject.name for subject in subjects), _SECTIONS_OF_SEVERAL
        return whole(f"{len(subjects)} runs", names, [write(subjects) for write in of_several])
    (subject,) = subjects
    return whole(subject.name, subject.run.network.name, [write(subject) for write in _SECTIONS])


_SECTIONS = (
    sections.summary,
    sections.curves_section,
    sections.network_section,
    sections.norms_section,
    sections.recommendations_section,
    sections.data_section,
    sections.time_section,
    sections.numbers_section,
    sections.documents_section,
    sections.machine_section,
)
_SECTIONS_OF_SEVERAL = (final_numbers, curves_over_each_other, differences)


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
    named = runs.run.path if isinstance(runs, Model) else runs
    paths = [Path(named)] if isinstance(named, str | os.PathLike) else [Path(path) for path in named]
    OptionError.require(paths, "must name a run", option="runs")
    is_local = not any(is_uri(path) for path in paths)
    OptionError.require(out or is_local, "must be a local file for a run in a store", option="out")
    names = _names(paths)
    if model is None:
        paths = [readable(path, "run") for path in paths]
    target = Path(out or (paths[0] / FILE_NAME if len(paths) == 1 else FILE_NAME))
    if out or len(paths) > 1:
        is_taken = [target.exists()]
        if model is not None:
            is_taken = model.network.exchange.collect(is_taken[0], "report")
        if is_taken[0]:
            check_new(target, overwrite or not out, "a report", _is_report)
    if len(paths) == 1:
        subjects = [_alone(names[0], paths[0], model, data)]
    else:
        subjects = [Subject(name, RunDirectory.open(path)) for name, path in zip(names, paths, strict=True)]
    if model is None or model.network.exchange.leads:
        target.parent.mkdir(parents=True, exist_ok=True)
        with appearing(target) as file:
            file.write(page(subjects).encode("utf-8", errors="xmlcharrefreplace"))
    return target


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return _BEGINNING.match(file.read(_HEAD_BYTES).decode("utf-8", errors="replace")) is not None


def _alone(name: str, path: Path, model: Model | None, data: Dataset | str | Path | None) -> Subject:
    run = RunDirectory.open(path) if model is None else model.run
    if data is None:
        dataset = run.dataset()
    else:
        dataset = data if isinstance(data, Dataset) else Dataset.open(data)
        run.check_dataset(dataset)
    if dataset is None:
        subject = Subject(name, run)
        if model is None or model.network.exchange.leads:
            # Frames: here, the function, its wrapper, the caller.
            warnings.warn(f"{run.path}: {subject.without_data} Name it with `data`.", stacklevel=4)
        return subject
    has_weights = model is not None or (path / "model").exists() or run.latest() is not None
    sample = sampled(model or Model.load(path, "cpu"), dataset) if has_weights else None
    return Subject(name, run, dataset.manifest, sample)


def _names(paths: Sequence[Path]) -> list[str]:
    """The names of the directories; whole paths for those that share a name."""
    names = [path.resolve().name for path in paths]
    times = Counter(names)
    return [name if times[name] == 1 else shown(path) for name, path in zip(names, paths, strict=True)]
