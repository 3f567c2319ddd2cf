"""Trainings into a store on one machine or several: which processes share a folder, and what it holds."""

import secrets
from contextlib import suppress
from pathlib import Path

from widenet.model.network import Network
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import by_all, by_some
from widenet.stores.runs import RunMirror
from widenet.training.checkpoint import Checkpoint, files_of
from widenet.training.run_path import writing

_WHERE = "run directory"
_DAY = 24 * 60 * 60


def meet(mirror: RunMirror, exchange: Exchange) -> None:
    """Find out which processes of a group share the folder of a run; all must call this.

    The first of those that share one leads there. Nobody needs to know what a machine or a mount is: each
    process leaves a file, and looks for those of the others.

    Raises:
        CheckpointError: A process cannot write into its folder; all processes raise this.
    """
    own = mirror.path.with_name(f".{mirror.path.name}.{secrets.token_hex(8)}.here")
    try:
        by_all(exchange, lambda: _leave(own), _WHERE)
        names = exchange.collect(own.name, _WHERE)
        seen = [own.with_name(name).exists() for name in names]
        exchange.collect(None, _WHERE)  # all have looked
    finally:
        own.unlink(missing_ok=True)
    mirror.leads, mirror.leads_here = exchange.leads, names[seen.index(True)] == own.name


def ready(mirror: RunMirror, exchange: Exchange, resume: bool) -> bool:
    """Bring the folders of a run to where its training begins; all processes of a group must call this.

    Args:
        mirror: The run.
        exchange: The exchange between the processes.
        resume: Whether to resume it.

    Returns:
        Whether there is something to resume: a training that torchrun restarts may have published nothing.

    Raises:
        CheckpointError: A folder cannot be written.
        StoreError: There is a run already, or the store refuses.
    """
    meet(mirror, exchange)

    def refresh() -> bool:
        with writing(mirror.path):
            return not mirror.leads_here or mirror.restore()

    def begin() -> None:
        with writing(mirror.path):
            mirror.begin(resume)

    resume = resume and all(exchange.collect(by_all(exchange, refresh, _WHERE), _WHERE))
    by_some(exchange, mirror.leads_here, begin, _WHERE)
    return resume


def fetch(mirror: RunMirror | None, checkpoint: Checkpoint, network: Network) -> None:
    """Copy the files of a published checkpoint that this process needs and another machine has written.

    Raises:
        StoreError: The store refuses, or has lost one; all processes raise this.
    """
    if mirror is None:
        return
    names = (name for name, _ in files_of(network, with_state=False))
    needed = {name: checkpoint.files[name] for name in names if name in checkpoint.files}

    def copy() -> None:
        with writing(checkpoint.path):
            mirror.fetch(checkpoint.path, needed)

    by_all(network.exchange, copy, "checkpoint")


def _leave(path: Path) -> None:
    """Make the file of this process; remove those that killed ones have left."""
    with writing(path):
        path.touch()
        for other in path.parent.glob(".*.here"):
            with suppress(FileNotFoundError):  # another process removes it, too
                if path.stat().st_mtime - other.stat().st_mtime > _DAY:
                    other.unlink()
