"""Writes checkpoints: each process writes its files into a temporary directory, which the leader renames.

The machines of a training into a store have such a directory each, and the first process of each renames it.
"""

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from widenet.errors import CheckpointError, StoreError, WidenetError
from widenet.model.network import Network
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import by_some
from widenet.stores.durable import force_to_disk, put_in_place
from widenet.stores.runs import RunMirror
from widenet.training.checkpoint import (
    FORMAT_VERSION,
    MANIFEST,
    Checkpoint,
    own_files,
    sha256_of_contents,
    writing,
)
from widenet.training.tensor_file import write

UNFINISHED = re.compile(r"\.(.+)\.(old|\d+|[0-9a-f]+\.partial)")
"""Names of files and folders that are being written or replaced."""


def recover(folder: Path) -> None:
    """Clean up a folder after a crash: restore directories that were being replaced, remove unfinished files.

    The caller must lock the folder against other writers.
    """
    for path in sorted(folder.glob(".*")):
        match = UNFINISHED.fullmatch(path.name)
        if match is None:
            continue
        if match[2] == "old" and not (folder / match[1]).exists():
            path.rename(folder / match[1])
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def leads_folder(exchange: Exchange, mirror: RunMirror | None) -> bool:
    """Return whether this process makes and renames the folders of a run.

    It is the leader; of a run in a store, the first process of each machine.
    """
    return exchange.leads if mirror is None else mirror.leads_here


@dataclass
class Written:
    """The files that one process wrote, with their sizes and checksums, or the error that stopped it."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    error: WidenetError | None = None


class Publication:
    """A checkpoint that is being written to a temporary folder beside its final path.

    All processes must construct it together and call `gather` together. `write` and `put_in_place` need no
    other process, so a thread can run them while the processes train. Only the leader removes the folder,
    and only before it is put in place.

    Attributes:
        leads: Whether this process makes, renames and removes the folder: the leader, or of a run in a store
            the first process of each machine.
    """

    def __init__(
        self, path: Path, exchange: Exchange, facts: dict[str, Any], mirror: RunMirror | None = None
    ) -> None:
        """Make the folder; raises CheckpointError.

        Args:
            path: The checkpoint's final path.
            exchange: The group of processes.
            facts: Plain JSON values to keep beside the tensors.
            mirror: The run in a store to which the checkpoint belongs.
        """
        self.mirror, self.leads = mirror, leads_folder(exchange, mirror)
        self.path, self.exchange, self.facts = path, exchange, facts
        self.beside = path.with_name(f".{path.name}.{exchange.collect(os.getpid(), 'checkpoint')[0]}")
        self.files: dict[str, dict[str, Any]] = {}
        by_some(exchange, self.leads, self._make_folder, "checkpoint")

    def _make_folder(self) -> None:
        with writing(self.path):
            shutil.rmtree(self.beside, ignore_errors=True)
            self.beside.mkdir(parents=True)

    def write(self, files: Iterable[tuple[str, Mapping[str, Tensor]]]) -> Written:
        """Write files of this process and force them to disk; an error is returned, not raised."""
        written = Written()
        try:
            with writing(self.path):
                for name, tensors in files:
                    file = self.beside / name
                    digest = write(file, tensors)
                    force_to_disk(file)
                    written.files[name] = {"bytes": file.stat().st_size, "sha256": digest}
                if self.mirror is not None:
                    self.mirror.send(self.beside, written.files)
        except (CheckpointError, StoreError) as error:
            written.error = error
        return written

    def gather(self, written: Written) -> None:
        """Share with all processes what each wrote; if one failed, all raise its error."""
        of_processes = self.exchange.collect(written, "checkpoint")
        for own in of_processes:
            if own.error is not None:
                raise own.error
        self.files = dict(sorted(item for own in of_processes for item in own.files.items()))

    def put_in_place(self) -> None:
        """Write the manifest and rename the folder to its final path; for processes that lead only."""
        with writing(self.path):
            digest = sha256_of_contents(self.files, self.facts)
            manifest = {
                "format_version": FORMAT_VERSION,
                "files": self.files,
                "facts": self.facts,
                "sha256": digest,
            }
            (self.beside / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            force_to_disk(self.beside / MANIFEST)
            put_in_place(self.beside, self.path)

    def drop(self) -> None:
        """Remove the folder of a checkpoint that will not be put in place, if this process leads."""
        if self.leads:
            shutil.rmtree(self.beside, ignore_errors=True)


def publish(
    path: Path, network: Network, facts: dict[str, Any], with_state: bool, mirror: RunMirror | None = None
) -> Checkpoint:
    """Write a network as a checkpoint, replacing an earlier one at `path`.

    The files are written beside the path, forced to disk, and then renamed.

    Args:
        path: Directory of the checkpoint.
        network: The network; all processes that hold it must call this.
        facts: Plain JSON values to keep beside the tensors.
        with_state: Whether to write the optimizer's state too.
        mirror: The run in a store to which it belongs.

    Raises:
        CheckpointError, StoreError: Writing or sending failed; the earlier checkpoint stays.
    """
    publication = Publication(path, network.exchange, facts, mirror)
    try:
        publication.gather(publication.write(own_files(network, with_state)))
        by_some(network.exchange, publication.leads, publication.put_in_place, "checkpoint")
    except BaseException:
        publication.drop()
        raise
    return Checkpoint(path, publication.files, facts)
