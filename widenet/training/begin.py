"""Begins or resumes a training: its run directory, and the state of its loop."""

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError, FitError, OptionError
from widenet.model.network import Network
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import by_all, by_leader, by_some, check_agreement
from widenet.parallel.launch import launch_name
from widenet.plan.layout import Layout
from widenet.stores import cache
from widenet.stores.runs import RunMirror
from widenet.training.checkpoint import leads_folder
from widenet.training.facts import COMPILED, NOT_COMPILED, changes, environment, facts_of_checkpoint
from widenet.training.run_directory import RunDirectory, TrainingFacts, record_of
from widenet.training.run_path import DATA, beside, is_of_launch, launch_note, take, write_whole
from widenet.training.start import check_vectors, load_start, load_vectors, match_start
from widenet.training.state import LoopState, Report


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
            if dataset.path.parent == beside(path):
                take(path)  # made anew where the folder of the run was lost
            return
        if start is not None:
            match_start(start, layout, dataset)
        vectors = check_vectors(layout, dataset)
        stack.enter_context(RunDirectory.begin(path, layout, dataset, start, overwrite, vectors))

    def check() -> tuple[RunDirectory, Dataset]:
        run, data = RunDirectory.open(path), dataset_of_run(dataset, path)
        _check_same(run, layout, data, start)
        return replace(run, mirror=mirror), data

    leads = leads_folder(exchange, mirror)
    by_some(exchange, leads, begin, "run directory")
    # A process that does not see the leader's files must not leave the others waiting.
    run, data = by_all(exchange, check, "run directory")
    if launch_name():
        names = "\n".join(dict.fromkeys(exchange.collect(launch_name(), "restart")))
        by_some(exchange, leads, lambda: write_whole(launch_note(path, mirror), names.encode()), "restart")
    return run, data


def dataset_of_run(dataset: Dataset, path: Path) -> Dataset:
    """Return a dataset where it lies now that the run at a path has begun."""
    return Dataset.open(path / DATA) if dataset.path.parent == beside(path) else dataset


def started_again(path: Path, mirror: RunMirror | None, exchange: Exchange) -> bool:
    """Return whether this group replaces an earlier one of the same launch by torchrun.

    torchrun counts restarts after a failure, only on the machine that lost a process, but not those after a
    machine has joined. In the latter case the run at the path is of this launch, unless the machine is new.
    """
    is_counted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0
    is_again = is_counted or is_of_launch(path, mirror, launch_name())
    return exchange.start_any([lambda: is_again], "restart")()[0]


def _check_same(run: RunDirectory, layout: Layout, dataset: Dataset, start: Path | None) -> None:
    """Raise CheckpointError or FitError unless a run can go on, and was begun with all of this."""
    can_resume = bool(run.checkpoints()) or not (run.path / "model").is_dir()
    rule = "holds a model, but no checkpoint that its training could go on from"
    CheckpointError.require(can_resume, rule, place=run.path)
    for before, now in ((run.network, layout.network), (run.training, layout.training)):
        keys = (key for key in type(now).model_fields if key != "track")  # it reaches no number
        changed = [key for key in keys if getattr(before, key) != getattr(now, key)]
        rule = f"was begun with another {now.usual_name}, which differs in {', '.join(changed)}"
        CheckpointError.require(not changed, rule, place=run.path)
    run.check_dataset(dataset)
    for field in map(layout.rows_field, layout.described.values()):
        known = run.fields[field].described_sha256
        is_same = known in (None, record_of(dataset, field).described_sha256)
        rule = f'describes the items of field "{field}" otherwise than when {run.path} was begun'
        FitError.require(is_same, rule, place=dataset.path)
    if start is not None and start.resolve() != run.start:
        # Each machine has its own copy of a run in a store, whose name holds the digest of the manifest.
        is_copy = cache.holds(start) and run.start is not None and start.name == run.start.name
        begun_with = "its initializers' weights" if run.start is None else f"those of {run.start}"
        rule = f"must be that with which {run.path} was begun: {begun_with}"
        CheckpointError.require(is_copy, rule, option="start_from", value=str(start))


def restored_state(run: RunDirectory, network: Network, dataset: Dataset, report: Report) -> LoopState:
    """Bring a network and a run's log to where its training stands.

    The newest checkpoint counts. If it is damaged or gone, the newest whole one counts, and the report says
    so.

    Returns:
        The state of the loop; that of a new training if there is no checkpoint.

    Raises:
        CheckpointError: No checkpoint can be read, although there is one.
        FitError, OptionError: The training would not have the bits of an undisturbed one.
    """
    state = LoopState()
    problem: CheckpointError | None = None
    paths = run.checkpoints()
    names = ", ".join(path.name for path in paths)
    check_agreement(network.exchange, {"checkpoints, newest first": names or "none"})
    for path in paths:
        try:
            facts = _read(run, network, dataset, path)
        except CheckpointError as error:
            problem = problem or error
            continue
        if problem is not None:
            report.say(f"{problem} Resuming from {path.name} instead.")
        state = facts.state
        changed = changes(facts.environment, network.device)
        if changed and not state.has_ended(run.training):
            rest = "from here on bits may differ from an undisturbed training's"
            what = f"other software or another processor ({'; '.join(changed)})"
            report.say(f"{run.path} resumes with {what}: {rest}.")
        break
    else:
        if problem is not None:
            raise problem
        load_start(run.start, network, dataset, report.say)
        load_vectors(run, network, dataset, report.say)
    if run.training.keep == "best" and (epoch := state.best_epoch) is not None:
        best = by_all(network.exchange, lambda: run.best(state.epoch, epoch), "checkpoint")
        best.check_files(network)
    by_leader(network.exchange, lambda: run.rewind_log(state.epoch), "log")
    return state


def _read(run: RunDirectory, network: Network, dataset: Dataset, path: Path) -> TrainingFacts:
    """Read a checkpoint into a network, and its facts; an error in one process is raised in all.

    Raises:
        CheckpointError: The checkpoint cannot be read.
        FitError, OptionError: Resuming would not give the bits of an undisturbed training.
    """
    checkpoint = by_all(network.exchange, lambda: run.checkpoint(path), "checkpoint")
    check_agreement(network.exchange, facts_of_checkpoint(checkpoint))
    facts, now = TrainingFacts.of(checkpoint.facts), environment(network.device)
    before, device = facts.environment, now["device"]
    rule = f"does not hold the examples that {run.path} was begun with"
    FitError.require(facts.examples == dataset.digest, rule, place=dataset.path)
    rule = f'must be "{before["device"]}", on which {run.path} was begun'
    OptionError.require(before["device"] == device, rule, option="device", value=device)
    is_same = (before[COMPILED] == NOT_COMPILED) == (now[COMPILED] == NOT_COMPILED)
    rule = f'was begun with compiled code "{before[COMPILED]}", which rounds in its own way'
    FitError.require(is_same, rule, place=run.path, value=now[COMPILED])
    checkpoint.load_into(network, with_state=True)
    return facts
