"""Runs in stores: trained in a local folder, of which every published checkpoint goes to the store."""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from widenet.errors import StoreError
from widenet.stores import cache
from widenet.stores.bucket import Bucket, Content
from widenet.stores.durable import remove
from widenet.stores.folders import (
    StoreManifest,
    check_vacant,
    digests_in,
    fill,
    object_name,
    read_manifest,
    send,
)
from widenet.stores.uri import Uri

_LASTING = ("vocabulary", "attributes")
"""Folders whose files are never written again once they are there."""
_MANIFEST = "manifest.json"
"""The file of a checkpoint that lists its other files."""
_LOCAL = "data"
"""The folder of a dataset that the training has made, and makes again where it is missing."""


class RunMirror:
    """A run at a URI, and the local folder in which it is trained.

    The store holds the run. The folder is a copy that is never ahead of it: a resumed training first brings
    it to what the store holds. Processes that share no folder have one each. Every process sends the files
    of a checkpoint that it has written; then the leader publishes the manifest of them all.

    Attributes:
        bucket: The place in the store.
        path: The local folder.
        launch: Names the torchrun launch that trains the run; it stays where the folder is lost.
        leads: Whether this process publishes for its group.
        leads_here: Whether it makes and renames folders for the processes that share its folder.
    """

    leads = leads_here = True

    def __init__(self, uri: Uri) -> None:
        self.bucket = Bucket(uri)
        self.path = cache.folder("runs") / cache.entry_name(uri)
        self.launch = self.path.with_name(f".{self.path.name}.torchrun")
        self._note = self.path.with_name(f".{self.path.name}.copied")
        """Holds the digest of the manifest that the folder is a copy of; empty once a training changes it."""
        self._known: dict[Path, Content] = {}
        self._published: StoreManifest | None = None
        self._earlier: set[str] = set()
        """SHA-256 of objects that a later manifest may no longer need."""
        self._sent: set[str] = set()
        """Those of checkpoints that were sent after the last manifest."""

    def begin(self, resume: bool) -> None:
        """Make the folder ready for a training.

        Args:
            resume: Whether `restore` has found a run; without, the folder keeps no more than its dataset.

        Raises:
            StoreError: A new run is to begin, and the store holds something already.
        """
        if not resume:
            check_vacant(self.bucket)
            self._published, self._earlier = None, digests_in(self.bucket)
            self.launch.unlink(missing_ok=True)
            self._remove()
        self._note.write_text("")

    def restore(self) -> bool:
        """Bring the folder to the state of the store; files that it has already are not downloaded again.

        Several processes of a machine may call this; one of them copies.

        Returns:
            Whether there is a run to resume.

        Raises:
            StoreError: The store refuses.
        """
        with cache.locked(self.path):
            manifest = read_manifest(self.bucket)
            if manifest is None:
                return False
            StoreError.require(manifest.kind == "run", "must be a run", place=self.bucket.uri)
            self._published, self._earlier = manifest, digests_in(self.bucket)
            has_copy = self.path.is_dir() and self._note.is_file()
            if has_copy and self._note.read_text() == manifest.digest:
                return True
            with self._unused() as is_unused:
                if is_unused:
                    self._note.write_text("")
                    self.path.mkdir(exist_ok=True)
                    _keep_only(self.path, manifest)
                    fill(self.path, self.bucket, manifest.files)
                    self._note.write_text(manifest.digest)
            return True

    def send(self, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Send files of a folder to the store; raises StoreError.

        Args:
            folder: The folder.
            files: Their entries in the manifest of a checkpoint, by name.
        """
        there = self.bucket.sizes()
        for name, entry in files.items():
            if there.get(object_name(entry["sha256"])) != entry["bytes"]:
                self.bucket.upload(object_name(entry["sha256"]), folder / name)

    def note_sent(self, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Note the files of a checkpoint that all processes have sent."""
        self._sent |= {entry["sha256"] for entry in files.values()}

    def fetch(self, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Copy the files that a folder lacks from the store; see `send`.

        Raises:
            StoreError: The store refuses, or does not hold one.
        """
        for name in [name for name in files if not (folder / name).exists()]:
            hidden = folder / f".{name}.{os.getpid()}"
            fill(folder, self.bucket, {hidden.name: _content_of(files[name])})
            hidden.replace(folder / name)

    def publish(self) -> None:
        """Publish what the folder holds, and remove what no manifest needs any more.

        Raises:
            StoreError: The store refuses, or another training has published.
        """
        sent, self._sent = self._sent, set()
        files: dict[str, Content] = {}
        sources: dict[str, Path | bytes] = {}
        for path in self._files():
            with suppress(FileNotFoundError):  # replaced meanwhile
                contents, source = self._contents(path)
                files |= {each.relative_to(self.path).as_posix(): own for each, own in contents.items()}
                sources[contents[path].sha256] = source
        manifest, listed = StoreManifest(kind="run", files=files), {each.sha256 for each in files.values()}
        send(self.bucket, manifest, sources, self._published, self._earlier - listed)
        self._published, self._earlier = manifest, listed | sent

    def _files(self) -> Iterator[Path]:
        """Yield the files of the run, without hidden ones, those of a dataset and checkpoints' weights."""
        for folder, names, files in os.walk(self.path):  # passes over a folder that vanishes meanwhile
            left_out = _LOCAL if Path(folder) == self.path else None
            names[:] = sorted(name for name in names if not name.startswith(".") and name != left_out)
            shown = [Path(folder) / name for name in sorted(files) if not name.startswith(".")]
            is_checkpoint = Path(folder, _MANIFEST) in shown
            yield from (path for path in shown if not is_checkpoint or path.name == _MANIFEST)

    def _contents(self, path: Path) -> tuple[dict[Path, Content], Path | bytes]:
        """The content of a file, and what to send: bytes of files that may grow meanwhile.

        With the manifest of a checkpoint come the files that it lists, which are in the store already.
        """
        if path.relative_to(self.path).parts[0] in _LASTING:
            if path not in self._known:
                self._known[path] = Content.of(path)
            return {path: self._known[path]}, path
        data = path.read_bytes()
        contents = {path: Content(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())}
        if path.name == _MANIFEST:
            contents |= {
                path.with_name(name): _content_of(own) for name, own in json.loads(data)["files"].items()
            }
        return contents, data

    def _remove(self) -> None:
        """Remove what a training has left in the folder but its dataset, unless a training holds its lock."""
        with self._unused() as is_unused:
            for path in self.path.iterdir() if is_unused and self.path.is_dir() else ():
                if path.is_dir() and path.name not in (_LOCAL, *_LASTING):
                    remove(path)

    @contextmanager
    def _unused(self) -> Iterator[bool]:
        """Hold the lock of the folder; the block learns whether no training has it."""
        try:
            lock = (self.path / ".lock").open()
        except FileNotFoundError:
            yield True  # no training has begun there
            return
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def _content_of(entry: Mapping[str, Any]) -> Content:
    """The content of a file from its entry in the manifest of a checkpoint."""
    return Content(bytes=entry["bytes"], sha256=entry["sha256"])


def _keep_only(folder: Path, manifest: StoreManifest) -> None:
    """Remove files that a manifest does not list, and empty folders, but for a dataset and hidden files."""
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder).as_posix()
        if name.startswith((".", f"{_LOCAL}/")):
            continue
        if path.is_dir():
            with suppress(OSError):  # it is not empty
                path.rmdir()
        elif name not in manifest.files:
            path.unlink()
