"""Writing checkpoints: every process writes its files beside the place, then the leader gives the whole
directory its name.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from widenet.checkpoint import (
    FORMAT_VERSION,
    MANIFEST,
    Checkpoint,
    own_files,
    sha256_of_contents,
    weights_among,
    writing,
)
from widenet.durable import force_to_disk, put_in_place
from widenet.errors import CheckpointError
from widenet.model.exchange import Exchange
from widenet.model.network import Network
from widenet.parallel.group import by_leader
from widenet.tensor_file import write


@dataclass
class Written:
    """The files that one process wrote, with sizes and checksums, or why it could not."""

    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    error: CheckpointError | None = None


class Publication:
    """A checkpoint that is being written to a folder beside its place.

    All processes make one together, and call `gather` together. `write` and `put_in_place` ask nothing of the
    others, so that a thread may run them while the processes train. Only the leader removes the folder, and
    only before it is put in place.
    """

    def __init__(self, path: Path, exchange: Exchange, facts: dict[str, Any]) -> None:
        """Make the folder. facts: plain JSON values to keep beside the tensors. Raises CheckpointError."""
        self.path, self.exchange, self.facts = path, exchange, facts
        self.beside = path.with_name(f".{path.name}.{exchange.collect(os.getpid(), 'checkpoint')[0]}")
        self.files: dict[str, dict[str, Any]] = {}
        by_leader(exchange, self._make_folder, "checkpoint")

    def _make_folder(self) -> None:
        with writing(self.path):
            shutil.rmtree(self.beside, ignore_errors=True)
            self.beside.mkdir(parents=True)

    def write(self, files: Iterable[tuple[str, Mapping[str, Tensor]]]) -> Written:
        """Write files of this process and force them to disk."""
        written = Written()
        try:
            with writing(self.path):
                for name, tensors in files:
                    digest = write(self.beside / name, tensors)
                    force_to_disk(self.beside / name)
                    written.files[name] = {"bytes": (self.beside / name).stat().st_size, "sha256": digest}
        except CheckpointError as error:
            written.error = error
        return written

    def gather(self, written: Written) -> None:
        """Tell each other what was written; where one process failed, all raise its CheckpointError."""
        found = self.exchange.collect(written, "checkpoint")
        for each in found:
            if each.error is not None:
                raise each.error
        self.files = dict(sorted(item for each in found for item in each.files.items()))

    def put_in_place(self) -> None:
        """Write the manifest and give the folder its name, in the leader; an earlier directory of that
        name is replaced.
        """
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
        """Remove what was written of a checkpoint that will not be put in place, if this process leads."""
        if self.exchange.leads:
            shutil.rmtree(self.beside, ignore_errors=True)


def publish(path: Path, network: Network, facts: dict[str, Any], with_state: bool) -> Checkpoint:
    """Write a network to a new directory: beside it first, forced to disk, then renamed.

    facts: plain JSON values to keep beside the tensors. with_state: the optimizer's state too.
    An earlier directory of that name is replaced. Raises CheckpointError; the earlier directory then stays.
    """
    publication = Publication(path, network.exchange, facts)
    try:
        own = own_files(network)
        publication.gather(
            publication.write(
                own if with_state else ((name, weights_among(tensors)) for name, tensors in own)
            )
        )
        by_leader(network.exchange, publication.put_in_place, "checkpoint")
    except BaseException:
        publication.drop()
        raise
    return Checkpoint(path, publication.files, facts)
