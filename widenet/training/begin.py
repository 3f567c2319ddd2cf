"""The run directory of a training that begins, or goes on."""

import json
import os
from contextlib import ExitStack
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError
from widenet.model.exchange import Exchange
from widenet.parallel.group import by_all, by_leader
from widenet.parallel.launcher import identity, launch_id, restarted
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import LAUNCH


def begun(
    path: Path,
    layout: Layout,
    dataset: Dataset,
    start: Path | None,
    resume: bool,
    exchange: Exchange,
    stack: ExitStack,
) -> RunDirectory:
    """The directory of a training, new or begun before, which stays locked until the stack is left; it notes
    the launch of torchrun.

    start: a run with whose weights a new one begins. Every process of the exchange must ask. Raises
    CheckpointError, FitError.
    """
    opened: list[RunDirectory] = []

    def begin() -> None:
        stack.enter_context(
            RunDirectory.open(path).locked() if resume else RunDirectory.begin(path, layout, dataset, start)
        )

    def check() -> None:
        run = RunDirectory.open(path)
        _check_documents(run, layout.network, layout.training)
        run.check_dataset(dataset)
        _check_start(run, start)
        opened.append(run.bound(layout))

    by_leader(exchange, begin, "run directory")
    by_all(
        exchange, check, "run directory"
    )  # a process that does not see the leader's files must not leave the others waiting
    (run,) = opened
    if launch_id():
        agents, processes = _agents_and_processes(exchange)
        by_leader(exchange, lambda: run.belongs_to("\n".join([launch_id(), *agents, *processes])), "restart")
    return run


def started_again(path: Path, exchange: Exchange) -> bool:
    """Whether torchrun has started this group in place of an earlier one of the same launch, which trained
    this run.

    torchrun counts restarts after a failure, but not those where a machine joins. Then its agents that were
    there before tell: they are known by the run, while the processes are new.
    """
    agents, processes = _agents_and_processes(exchange)
    noted = (
        (path / LAUNCH).read_text(encoding="utf-8").splitlines()
        if exchange.leads and (path / LAUNCH).is_file()
        else []
    )
    known = (
        noted[:1] == [launch_id()] and not set(agents).isdisjoint(noted) and set(processes).isdisjoint(noted)
    )
    return exchange.start_any([lambda: known or restarted()], "restart").result()[0]


def _agents_and_processes(exchange: Exchange) -> tuple[list[str], list[str]]:
    """The agents of torchrun that have started this group, and its processes, each by a name of its own."""
    everyone = exchange.collect((identity(os.getppid()), identity(os.getpid())), "restart")
    agents, processes = zip(*everyone, strict=True)
    return [*dict.fromkeys(filter(None, agents))], [*filter(None, processes)]


def _check_documents(run: RunDirectory, network: NetworkSpec, training: TrainingSpec) -> None:
    """Raise where a run was begun with other documents."""
    for name, before, now in (("network", run.network, network), ("training", run.training, training)):
        changed = [key for key in type(now).model_fields if getattr(before, key) != getattr(now, key)]
        if changed:
            differ = (
                f"{', '.join(json.dumps(key) for key in changed)} differ{'s' if len(changed) == 1 else ''}"
            )
            other = (
                f"; {training.shards} shards for {run.training.shards} make other sums, and so another run"
                if "shards" in changed
                else ""
            )
            raise CheckpointError(
                f"{run.path} was begun with another {name}.json: {differ}{other}. Resume with"
                f" {run.path / name}.json."
            )


def _check_start(run: RunDirectory, start: Path | None) -> None:
    """Raise where a run that goes on is asked to begin with other weights than it did; nobody need name
    them again.
    """
    if start is not None and start.resolve() != run.start:
        before = "its initializers' weights" if run.start is None else f"those of {run.start}"
        raise CheckpointError(
            f"{run.path} was begun with {before}, not of {start}. Resume it without `start_from`, or"
            " choose another `out`."
        )
