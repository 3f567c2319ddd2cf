"""Runs in stores: trained in a local folder, of which every published checkpoint goes to the store."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from widenet.errors import CheckpointError, DataError, StoreError
from widenet.stores import cache
from widenet.stores.bucket import Bucket, Content, server_of
from widenet.stores.durable import appearing, put_in_place
from widenet.stores.folders import (
    StoreManifest,
    check_vacant,
    digest_of,
    fill,
    object_name,
    read_manifest,
    send,
)
from widenet.stores.uri import Uri

_WEIGHTS = ("checkpoints", "best", "model")
_LASTING = (*_WEIGHTS, "vocabulary", "attributes")
"""Folders whose files are never written again once they are there."""
_LOCAL = "data"
"""The folder of a dataset that the training has made, and makes again where it is missing."""
_WITHOUT_WEIGHTS = (_LOCAL, "vocabulary", "attributes")
"""The folders of a run that has only begun, which a new one replaces."""


class RunMirror:
    """A run at a URI, and the local folder in which it is trained.

    A training on several machines that share no folder has one on each. The processes there write their
    files of a checkpoint into it and send them; then the leader publishes the manifest, with the SHA-256 of
    the files that only other machines have. Such a folder is not the whole run, so it is never ahead of the
    store: a resumed training brings it back to what the store holds.

    Attributes:
        bucket: The place in the store.
        path: The local folder.
        leads: Whether this process publishes for its group.
        leads_here: Whether it makes and renames folders for the processes that share its folder.
        is_with_leader: Whether its folder is that of the process that publishes.
        is_shared: Whether the group has several such folders.
    """

    leads = leads_here = is_with_leader = True
    is_shared = False

    def __init__(self, uri: Uri) -> None:
        self.bucket = Bucket(uri)
        self.path = cache.folder("runs") / cache.entry_name(uri, *server_of(uri.scheme))
        self._note = self.path.with_name(f".{self.path.name}.published")
        self._part = self.path.with_name(f".{self.path.name}.part")
        """Says that the folder is one of several, with the digest of the manifest that it was brought to."""
        self.launch = self.path.with_name(f".{self.path.name}.torchrun")
        """Names the torchrun launch that trains the run; unlike the folder, a failed copy leaves it there."""
        self._known: dict[Path, tuple[tuple[int, int, int], Content]] = {}

    def begin(self) -> None:
        """Make the folder ready for a new run; raises CheckpointError if the store has one."""
        self._check_vacant()
        if self._part.exists():
            self._remove()
        self.launch.unlink(missing_ok=True)
        self._remember(None)

    def restore(self) -> bool:
        """Bring the folder to the state of the store; keep work that the store lacks.

        Several processes of a machine may call this; one of them copies.

        Returns:
            Whether there is a run to resume.

        Raises:
            CheckpointError: The folder has checkpoints that the store lacks, and the store has others.
            StoreError: The store refuses.
        """
        with cache.locked(self.path):
            manifest, is_part = read_manifest(self.bucket), self._part.exists()
            if self.is_shared and not is_part:
                self._check_behind()
            if manifest is None:
                if is_part:
                    self._remove()
                return not is_part and self.path.exists()
            if self._part.read_text() == manifest.digest if is_part else self._is_noted(manifest):
                return True
            StoreError.require(manifest.kind == "run", "must be a run", place=self.bucket.uri)
            partial = cache.partial(self.path)
            if is_part:
                with self._unused() as is_unused:
                    if not is_unused:
                        return True
                    if self.path.exists() and not partial.exists():
                        self.path.rename(partial)  # its files are not downloaded again
            else:
                self._check_behind()
            partial.mkdir(exist_ok=True)
            _keep_only(partial, manifest)  # of an earlier copy that was broken off
            fill(partial, self.bucket, manifest.files)
            put_in_place(partial, self.path)
            self._remember(manifest)
            if is_part:
                self._part.write_text(manifest.digest)
            return True

    def note_machines(self) -> None:
        """Note whether the folder is one of several; call this when a training begins there."""
        if self.is_shared:
            self._part.write_text("")  # from now on it is not what the store holds
        else:
            self._part.unlink(missing_ok=True)

    def send(self, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Send files of a folder to the store, if the leader does not have them; raises StoreError.

        Args:
            folder: The folder.
            files: Their entries in the manifest of a checkpoint, by name.
        """
        if self.is_with_leader:
            return
        there = self.bucket.sizes()
        for name, entry in files.items():
            if there.get(object_name(entry["sha256"])) != entry["bytes"]:
                self.bucket.upload(object_name(entry["sha256"]), folder / name)

    def fetch(self, folder: Path, files: Mapping[str, Mapping[str, Any]]) -> None:
        """Copy the files that a folder lacks from the store; see `send`.

        Raises:
            StoreError: The store refuses, or does not hold one.
        """
        for name in [name for name in files if not (folder / name).exists()]:
            hidden, content = folder / f".{name}.{os.getpid()}", _content_of(files[name])
            fill(folder, self.bucket, {hidden.name: content})
            hidden.replace(folder / name)

    def publish(self) -> None:
        """Publish what the folder holds, the manifest last; a finished upload is not repeated.

        Raises:
            StoreError: The store refuses, or another training has published; the folder stays as it is.
        """
        try:
            self._publish()
        except (StoreError, CheckpointError) as error:
            rule = f"sends the run in {self.path} again, which could not be sent: {error}"
            raise StoreError(rule, option="resume") from None

    def _publish(self) -> None:
        before = read_manifest(self.bucket)
        if before is None:
            self._check_vacant()
        elif not self._is_noted(before):
            raise StoreError("was published by somebody else meanwhile", place=self.bucket.uri)
        files, sources = dict(self._elsewhere()), dict[str, Path | bytes]()
        for path in self._files():
            with suppress(FileNotFoundError):  # replaced meanwhile
                content, source = self._content(path)
                files[path.relative_to(self.path).as_posix()] = content
                sources[content.sha256] = source
        if before is not None and before.files == files:
            self._remember(before)
            return
        earlier: set[str] = set()
        for noted in filter(None, self._noted()):  # perhaps one whose objects were sent in part
            earlier |= {content.sha256 for content in noted.files.values()} | noted.replaced
        there = set(map(digest_of, self.bucket.sizes()))
        listed = {content.sha256 for content in files.values()}
        manifest = StoreManifest(kind="run", files=files, replaced=frozenset((earlier - listed) & there))
        self._remember(before, manifest)
        send(self.bucket, manifest, sources, before)
        self._remember(manifest)

    def _remove(self) -> None:
        """Remove the work in the folder, which the store does not need, unless a training holds its lock.

        The rest stays for the training that begins there: it may read the dataset already.
        """
        with self._unused() as is_unused:
            if is_unused and self.path.is_dir():
                for path in self.path.iterdir():
                    if path.is_dir() and path.name not in _WITHOUT_WEIGHTS:
                        shutil.rmtree(path)

    @contextmanager
    def _unused(self) -> Iterator[bool]:
        """Hold the lock of the folder; the block learns whether no training has it."""
        with ExitStack() as stack:
            is_unused = True
            try:
                lock = stack.enter_context((self.path / ".lock").open())
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except FileNotFoundError:
                pass  # no training has begun there
            except BlockingIOError:
                is_unused = False
            yield is_unused

    def _elsewhere(self) -> Iterator[tuple[str, Content]]:
        """Yield the files of the folder's checkpoints that other machines have written and sent."""
        for path in self._manifests() if self._part.exists() else ():
            with suppress(FileNotFoundError, ValueError, LookupError, TypeError):  # removed, or damaged
                files = json.loads(path.read_text(encoding="utf-8"))["files"]
                for name, entry in files.items():
                    if not (path.parent / name).exists():
                        place = (path.parent / name).relative_to(self.path).as_posix()
                        yield place, _content_of(entry)

    def _manifests(self) -> list[Path]:
        """The manifests of the folder's finished checkpoints."""
        return [
            path
            for path in self._files()
            if path.name == "manifest.json" and path.relative_to(self.path).parts[0] in _WEIGHTS
        ]

    def _files(self) -> Iterator[Path]:
        """Yield the files of the run, without hidden ones and those of a dataset."""
        for folder, names, files in os.walk(self.path):  # passes over a folder that vanishes meanwhile
            left_out = _LOCAL if Path(folder) == self.path else None
            names[:] = sorted(name for name in names if not name.startswith(".") and name != left_out)
            yield from (Path(folder) / name for name in sorted(files) if not name.startswith("."))

    def _content(self, path: Path) -> tuple[Content, Path | bytes]:
        """The content of a file, and what to send: bytes of files that may grow meanwhile."""
        if path.relative_to(self.path).parts[0] not in _LASTING or path.name == "latest":
            data = path.read_bytes()
            return Content(bytes=len(data), sha256=hashlib.sha256(data).hexdigest()), data
        status = path.stat()
        key = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._known.get(path, (None,))[0] != key:
            self._known[path] = key, Content.of(path)
        return self._known[path][1], path

    def _check_vacant(self) -> None:
        try:
            check_vacant(self.bucket)
        except DataError as error:
            raise CheckpointError(error.rule, place=error.place) from None

    def _check_behind(self) -> None:
        """Raise CheckpointError if the folder holds weights that were never published."""
        own = {path.relative_to(self.path).as_posix(): Content.of(path) for path in self._manifests()}
        published = next(iter(self._noted()), None)
        if not own.items() <= (published.files if published is not None else {}).items():
            rule = f"holds checkpoints that {self.bucket.uri} lacks; resume it alone, or remove it"
            raise CheckpointError(rule, place=self.path)

    def _is_noted(self, manifest: StoreManifest) -> bool:
        return any(noted is not None and noted.digest == manifest.digest for noted in self._noted())

    def _noted(self) -> list[StoreManifest | None]:
        """The manifest that the folder has published or was copied from, and one that was to follow."""
        if not self.path.is_dir() or not self._note.exists():
            return []
        texts = json.loads(self._note.read_text(encoding="utf-8"))
        return [text and StoreManifest.from_json(text.encode(), self._note) for text in texts]

    def _remember(self, *manifests: StoreManifest | None) -> None:
        with appearing(self._note) as file:
            texts = [manifest and manifest.to_json().decode() for manifest in manifests]
            file.write(json.dumps(texts).encode())


def _content_of(entry: Mapping[str, Any]) -> Content:
    """The content of a file from its entry in the manifest of a checkpoint."""
    return Content(bytes=entry["bytes"], sha256=entry["sha256"])


def _keep_only(folder: Path, manifest: StoreManifest) -> None:
    """Remove files that a manifest does not list, and empty folders, but for a dataset."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.relative_to(folder).parts[0] == _LOCAL:
            continue
        if path.is_dir():
            with suppress(OSError):  # it is not empty
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in manifest.files:
            path.unlink()
