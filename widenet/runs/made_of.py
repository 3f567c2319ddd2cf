"""Saves runs that are made of trained ones: smaller ones, or with another term."""

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from glob import escape
from pathlib import Path
from typing import Any

from widenet.data.known import RUN_FIELDS
from widenet.errors import CheckpointError, OptionError
from widenet.model.network import Network
from widenet.parallel.group import by_leader
from widenet.runs.documents import path_of
from widenet.runs.model import Model
from widenet.spec.network import NetworkSpec
from widenet.stores.durable import force_all_to_disk
from widenet.stores.uri import check_local, is_uri
from widenet.training import replacing
from widenet.training.checkpoint import writing
from widenet.training.cut import Cut
from widenet.training.existing_run import DATA, FITTED, WHOLE
from widenet.training.run_directory import RunDirectory, with_network_of
from widenet.training.run_path import START, VECTORS, locked, put, without_weights, write_whole

_COPIED = (
    "network.json",
    FITTED,
    "training.json",
    RUN_FIELDS,
    "vocabulary",
    "attributes",
    "log.jsonl",
    START,
    VECTORS,
)
_PARTIAL = ".partial"
"""End of the name of a run that is being made."""


def saved_made_of(
    run: str | Path,
    out: str | Path,
    overwrite: bool,
    check: Callable[[Model], None],
    change: Callable[[Network], None],
    facts: Mapping[str, Any],
) -> Model:
    """Make a run of a trained one.

    Args:
        run: The trained run.
        out: The run directory to make.
        overwrite: Replace an earlier run at `out`.
        check: Raises OptionError or FitError if it cannot be made of a model.
        change: Changes the network, perhaps its document too.
        facts: What to add to the facts beside the weights, read after `change`.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        OptionError, FitError: `check` raises it, or `out` lies in the run.
    """
    check_local("`out`", out)
    path = path_of("out", out)
    source = RunDirectory.open(path_of("run", run))
    _check_finished(source)
    if path.resolve().is_relative_to(source.path.resolve()):
        raise OptionError(
            f"`out` must not lie in {source.path}, which it is made of; got {path}. Choose another."
        )
    model = Model.load(source.path, device="cpu")
    check(model)
    exchange = model.network.exchange
    needed = [source.path]
    by_leader(exchange, lambda: _check_free(path, needed, overwrite), "run directory")
    token = exchange.collect(secrets.token_hex(4), "run directory")[0]
    beside = path.with_name(f".{path.name}.{token}{_PARTIAL}")
    own = {name: fact for name, fact in model.facts.items() if name not in ("documents", "fingerprint")}
    made_of = str(run) if is_uri(run) else str(source.path.resolve())
    with ExitStack() as stack:
        by_leader(exchange, lambda: _begin(source, beside, path, stack), "run directory")
        before = model.network.spec
        change(model.network)
        if (spec := model.network.spec) is not before:
            own.pop("network", None)
            by_leader(exchange, lambda: _put_network(beside, spec), "run directory")
        saved = RunDirectory.open(beside).save_model(
            "model", model.network, {**own, "made_of": made_of, **facts}
        )
        by_leader(exchange, lambda: _put(beside, path, needed, overwrite), "run directory")
    return Model(with_network_of(RunDirectory.open(path), saved), model.network, saved.facts)


def _put_network(run: Path, spec: NetworkSpec) -> None:
    """Give a run another network document, whose terms are not fitted again; raises CheckpointError."""
    write_whole(run / "network.json", spec.to_json().encode())
    (run / FITTED).unlink(missing_ok=True)


def num_bytes(run: str | Path) -> int:
    """Return the bytes of a run's weights on disk."""
    return sum(file["bytes"] for file in RunDirectory.open(path_of("run", run)).model().files.values())


def _check_finished(run: RunDirectory) -> None:
    """Raise CheckpointError unless a run has its final weights."""
    if (run.path / "model").is_dir():
        return
    if run.latest() is None:
        raise without_weights(run.path)
    raise CheckpointError(
        f"{run.path} has not ended, and other runs are made of final weights alone. Finish it with"
        ' "widenet.train(..., resume=True)".'
    )


def _check_free(path: Path, needed: Sequence[Path], overwrite: bool) -> None:
    """Raise CheckpointError unless a run may be made at a path."""
    if overwrite and (path / DATA).is_dir():
        raise CheckpointError(f"{path} holds a dataset, which would go with it. Choose another `out`.")
    replacing.check_whole(path, needed, overwrite)


def _begin(run: RunDirectory, beside: Path, path: Path, stack: ExitStack) -> None:
    """Copy what a run has beside its weights to a new folder; the stack locks it, and removes what is left.

    Raises:
        CheckpointError: The system refuses.
    """
    with writing(path):
        for left in path.parent.glob(f".{escape(path.name)}.*{_PARTIAL}"):  # by killed processes
            with suppress(CheckpointError), locked(left):
                shutil.rmtree(left)
        stack.callback(shutil.rmtree, beside, ignore_errors=True)
        beside.mkdir(parents=True)
        stack.enter_context(locked(beside))  # the lock survives the renaming
        for name in _COPIED:
            if (run.path / name).is_dir():
                shutil.copytree(run.path / name, beside / name)
            elif (run.path / name).exists():
                shutil.copyfile(run.path / name, beside / name)
        own_data = {"data": str((run.path / DATA).resolve())} if (run.path / DATA).is_dir() else {}
        if (cut := Cut.read(run.path)) is not None:
            own_data[WHOLE] = cut.examples
        RunDirectory.open(beside).note_machine({**run.machine, **own_data})
        force_all_to_disk(beside)


def _put(beside: Path, path: Path, needed: Sequence[Path], overwrite: bool) -> None:
    """Move a finished run to its path; raises CheckpointError."""
    with writing(path):
        if overwrite:
            replacing.set_aside(path, needed)
        put(beside, path)
        replacing.settle(path)
