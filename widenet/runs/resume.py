"""Resuming a training: the state of its loop, read from the newest checkpoint that is whole."""

from collections.abc import Callable
from typing import TypeVar

import torch

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError, FitError, OptionError
from widenet.model.network import Network
from widenet.model.optimizers import is_compiled
from widenet.parallel.agreement import check_agreement
from widenet.parallel.group import by_all, by_leader
from widenet.training.checkpoint import Checkpoint
from widenet.training.environment import changes
from widenet.training.in_common import facts_of_checkpoint
from widenet.training.load_vectors import load_vectors
from widenet.training.run_directory import RunDirectory
from widenet.training.saved_facts import TrainingFacts
from widenet.training.start import load_start
from widenet.training.state import LoopState, Report

T = TypeVar("T")


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
    check_agreement(network.exchange, run.listing())
    for find in run.candidates():
        try:
            checkpoint = _read(run, network, dataset, find)
        except CheckpointError as error:
            problem = problem or error
            continue
        if checkpoint is None:
            continue
        if problem is not None:
            report.say(f"{problem} Resuming from {checkpoint.path.name} instead.")
        facts = TrainingFacts.of(checkpoint.facts)
        state = facts.state
        _report_changed_environment(run, facts, network.device, state, report)
        break
    else:
        if problem is not None:
            raise problem
        by_leader(network.exchange, lambda: _check_unfinished(run), "run")
        load_start(run.start, network, dataset, report.say)
        load_vectors(run, network, dataset, report.say)
    _check_best(run, network, state)
    by_leader(network.exchange, lambda: run.rewind_log(state.epoch), "log")
    return state


def _check_best(run: RunDirectory, network: Network, state: LoopState) -> None:
    """Raise CheckpointError if the weights of the best evaluation are missing or damaged."""
    epoch = state.best_epoch
    if run.training.keep == "best" and epoch is not None:
        agreed(network, lambda: run.best(state.epoch, epoch)).check_files(network)


def _check_unfinished(run: RunDirectory) -> None:
    """Raise CheckpointError if a training from its beginning would replace a model."""
    if (run.path / "model").is_dir():
        rule = "holds a model, but no checkpoint that its training could go on from"
        raise CheckpointError(rule, place=run.path)


def agreed(network: Network, find: Callable[[], T]) -> T:
    """Call a function in every process; an error in one process is raised in all."""
    return by_all(network.exchange, find, "checkpoint")


def _report_changed_environment(
    run: RunDirectory, facts: TrainingFacts, device: torch.device, state: LoopState, report: Report
) -> None:
    """Report libraries or instruction sets that differ from those of the steps so far."""
    changed = changes(facts.environment, device)
    if changed and not state.has_ended(run.training):
        rest = "from here on bits may differ from an undisturbed training's"
        report.say(
            f"{run.path} resumes with other software or another processor ({'; '.join(changed)}): {rest}."
        )


def _read(
    run: RunDirectory, network: Network, dataset: Dataset, find: Callable[[], Checkpoint | None]
) -> Checkpoint | None:
    """Read a checkpoint into a network after checking it; an error in one process is raised in all."""
    checkpoint = agreed(network, find)
    check_agreement(network.exchange, facts_of_checkpoint(checkpoint))
    if checkpoint is not None:
        _check_resumable(run, checkpoint, dataset, network)
        checkpoint.load_into(network, with_state=True)
    return checkpoint


def _check_resumable(run: RunDirectory, checkpoint: Checkpoint, dataset: Dataset, network: Network) -> None:
    """Raise FitError or OptionError if resuming would not give the bits of an undisturbed training."""
    facts, now = TrainingFacts.of(checkpoint.facts), network.device.type
    if facts.examples != dataset.digest:
        rule = f"does not hold the examples that {run.path} was begun with"
        raise FitError(rule, place=dataset.path)
    if facts.is_compiled != is_compiled(now) and now == facts.device:
        how = "with" if facts.is_compiled else "without"
        compiler = "the native library" if now == "cpu" else "Triton"
        raise FitError(f"was begun {how} {compiler}, which rounds in its own way", place=run.path)
    before = facts.device
    if before != now:
        rule = f'must be "{before}", on which {run.path} was begun'
        raise OptionError(rule, option="device", value=now)
