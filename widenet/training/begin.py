"""The run directory of a training that begins, or goes on."""

import json
from contextlib import ExitStack
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError
from widenet.model.exchange import Exchange
from widenet.parallel.announced import launch_id
from widenet.parallel.group import by_all, by_leader
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.run_directory import RunDirectory


def begun(
    path: Path,
    network: NetworkSpec,
    training: TrainingSpec,
    dataset: Dataset,
    start: Path | None,
    resume: bool,
    exchange: Exchange,
    stack: ExitStack,
) -> RunDirectory:
    """The directory of a training, new or begun before, which stays locked until the stack is left; it notes the launch of torchrun.

    start: a run with whose weights a new one begins. Every process of the exchange must ask. Raises CheckpointError, FitError.
    """
    opened: list[RunDirectory] = []

    def begin() -> None:
        stack.enter_context(RunDirectory.open(path).locked() if resume else RunDirectory.begin(path, network, training, dataset, start))

    def check() -> None:
        run = RunDirectory.open(path)
        _check_documents(run, network, training)
        run.check_dataset(dataset)
        _check_start(run, start)
        opened.append(run)

    by_leader(exchange, begin, "run directory")
    by_all(exchange, check, "run directory")  # a process that does not see the leader's files must not leave the others waiting
    (run,) = opened
    if launch_id():
        by_leader(exchange, lambda: run.belongs_to(launch_id()), "restart")
    return run


def _check_documents(run: RunDirectory, network: NetworkSpec, training: TrainingSpec) -> None:
    """Raise where a run was begun with other documents."""
    for name, before, now in (("network", run.network, network), ("training", run.training, training)):
        changed = [key for key in type(now).model_fields if getattr(before, key) != getattr(now, key)]
        if changed:
            differ = f"{', '.join(json.dumps(key) for key in changed)} differ{'s' if len(changed) == 1 else ''}"
            other = (
                f"; {training.shards} shards for {run.training.shards} make other sums, and so another run" if "shards" in changed else ""
            )
            raise CheckpointError(f"{run.path} was begun with another {name}.json: {differ}{other}. Resume with {run.path / name}.json.")


def _check_start(run: RunDirectory, start: Path | None) -> None:
    """Raise where a run that goes on is asked to begin with other weights than it did; nobody need name them again."""
    if start is not None and start.resolve() != run.start:
        before = "its initializers' weights" if run.start is None else f"those of {run.start}"
        raise CheckpointError(f"{run.path} was begun with {before}, not of {start}. Resume it without --from, or choose another --out.")
