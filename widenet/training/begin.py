"""Begins or resumes a training in its run directory."""

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError, FitError
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import by_all, by_some
from widenet.parallel.launch import identity, launch_id, restarted
from widenet.plan.descriptions import described_weights
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.stores import cache
from widenet.stores.runs import RunMirror
from widenet.training import replacing
from widenet.training.checkpoint import writing
from widenet.training.cut import take, taken
from widenet.training.field_records import record_of
from widenet.training.load_vectors import check_vectors
from widenet.training.publication import leads_folder
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import launch_note, write_whole
from widenet.training.start import check_start


def begun(
    path: Path,
    layout: Layout,
    dataset: Dataset,
    start: Path | None,
    resume: bool,
    overwrite: bool,
    exchange: Exchange,
    stack: ExitStack,
    mirror: RunMirror | None = None,
) -> tuple[RunDirectory, Dataset]:
    """Make a run directory, or open one that was begun before; every process of the exchange must call this.

    Args:
        path: Path of the directory.
        layout: Layout of the training.
        dataset: Dataset of the training.
        start: Run whose weights a new training begins with; None: its initializers'.
        resume: Whether to open an existing run.
        overwrite: Whether a new run may replace an earlier one.
        exchange: Exchange between the processes.
        stack: Keeps the directory locked until it is closed.
        mirror: Publishes the run in a store; each machine then has a directory at the path.

    Returns:
        The run, and the dataset where it lies now.

    Raises:
        CheckpointError: The directory is taken, missing, or of another training.
        DataError: A file of vectors cannot be read.
        FitError: The run was begun on another dataset, or vectors or the weights to begin with do not fit.
    """

    def begin() -> None:
        if resume:
            stack.enter_context(RunDirectory.open(path).locked())
            with writing(path):
                take(dataset, path, path)  # made anew where the folder of the run was lost
            return
        replacing.check(path, [dataset.path, *([] if start is None else [start])], overwrite)
        if start is not None:
            check_start(start, layout, dataset)
        vectors = check_vectors(layout, dataset)
        stack.enter_context(RunDirectory.begin(path, layout, dataset, start, overwrite, vectors))

    def check() -> tuple[RunDirectory, Dataset]:
        run, data = RunDirectory.open(path), taken(dataset, path)
        _check_documents(run, layout.network, layout.training)
        run.check_dataset(data)
        _check_descriptions(run, data, layout)
        _check_start(run, start)
        return replace(run.bound(layout), mirror=mirror), data

    leads = leads_folder(exchange, mirror)
    by_some(exchange, leads, begin, "run directory")
    # A process that does not see the leader's files must not leave the others waiting.
    run, data = by_all(exchange, check, "run directory")
    if launch_id():
        agents, processes = _agents_and_processes(exchange)
        lines = "\n".join([launch_id(), *agents, *processes])
        by_some(exchange, leads, lambda: write_whole(launch_note(path, mirror), lines.encode()), "restart")
    return run, data


def started_again(note: Path, exchange: Exchange) -> bool:
    """Return whether this group replaces an earlier one of the same torchrun launch that trained this run.

    `note` is that of `launch_note`, and a new machine has none.

    torchrun counts restarts after a failure, but not those after a machine has joined. In the latter case the
    run knows some of torchrun's agents, but none of the processes.
    """
    agents, processes = _agents_and_processes(exchange)
    lines = note.read_text(encoding="utf-8", errors="replace").splitlines() if note.is_file() else []
    replaces_earlier = (
        lines[:1] == [launch_id()] and not set(agents).isdisjoint(lines) and set(processes).isdisjoint(lines)
    )
    return exchange.start_any([lambda: replaces_earlier or restarted()], "restart")()[0]


def _agents_and_processes(exchange: Exchange) -> tuple[list[str], list[str]]:
    """Return unique names of the torchrun agents that started this group, and of its processes."""
    everyone = exchange.collect((identity(os.getppid()), identity(os.getpid())), "restart")
    agents, processes = zip(*everyone, strict=True)
    return [*dict.fromkeys(filter(None, agents))], [*filter(None, processes)]


def _check_documents(run: RunDirectory, network: NetworkSpec, training: TrainingSpec) -> None:
    """Raise CheckpointError if a run was begun with other documents."""
    for name, before, now in (("network", run.network, network), ("training", run.training, training)):
        keys = (key for key in type(now).model_fields if key != "track")  # it reaches no number
        changed = [key for key in keys if getattr(before, key) != getattr(now, key)]
        if changed:
            rule = f"was begun with another {name}.json, which differs in {', '.join(changed)}"
            raise CheckpointError(rule, place=run.path)


def _check_descriptions(run: RunDirectory, dataset: Dataset, layout: Layout) -> None:
    """Raise FitError if the rows of a described weight were begun with other attributes."""
    for own in described_weights(layout).values():
        before = run.fields[own.field].described_sha256
        if before not in (None, record_of(dataset, own.field).described_sha256):
            rule = f'describes the items of field "{own.field}" otherwise than when {run.path} was begun'
            raise FitError(rule, place=dataset.path)


def _check_start(run: RunDirectory, start: Path | None) -> None:
    """Raise CheckpointError if a resumed run began with other weights than those of `start`."""
    if start is not None and not _is_start(run, start):
        before = "its initializers' weights" if run.start is None else f"those of {run.start}"
        rule = f"must be that with which {run.path} was begun: {before}"
        raise CheckpointError(rule, option="start_from", value=str(start))


def _is_start(run: RunDirectory, start: Path) -> bool:
    """Whether a run began with the weights of `start`; each machine has its own copy of a run in a store."""
    if cache.holds(start) and run.start is not None:
        return start.name == run.start.name  # it holds the digest of the manifest
    return start.resolve() == run.start
