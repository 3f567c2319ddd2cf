"""Runs in stores: trained in a local folder, of which every published checkpoint goes to the store."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from widenet.durable import appearing, put_in_place
from widenet.errors import CheckpointError, DataError, StoreError
from widenet.stores import cache
from widenet.stores.bucket import Bucket, Content
from widenet.stores.fetch import fill
from widenet.stores.manifest import StoreManifest, digest_of, read_manifest
from widenet.stores.publish import check_ours, send
from widenet.stores.servers import endpoint
from widenet.stores.uri import Uri

_WEIGHTS = ("checkpoints", "best", "model")
_LASTING = (*_WEIGHTS, "vocabulary", "attributes")
"""Folders whose files are never written again once they are there."""
_LOCAL = "data"
"""The folder of a dataset that the training has made, and makes again where it is missing."""


class RunMirror:
    """A run at a URI, and the local folder in which it is trained.

    Attributes:
        bucket: The place in the store.
        path: The local folder.
    """

    def __init__(self, uri: Uri) -> None:
        self.bucket = Bucket(uri)
        self.path = cache.folder("runs") / cache.entry_name(uri, *endpoint(uri.scheme))
        self._note = self.path.with_name(f".{self.path.name}.published")
        self._known: dict[Path, tuple[tuple[int, int, int], Content]] = {}

    def begin(self) -> None:
        """Make the folder ready for a new run; raises CheckpointError if the store has one."""
        if read_manifest(self.bucket) is not None:
            raise CheckpointError(
                f"{self.bucket.uri} exists already. Resume it with `resume=True`, or choose another `out`."
            )
        self._check_ours()
        if any(self._noted()) and not self._is_ahead():
            self._set_aside()  # published, and then removed from the store
        self._remember(None)

    def restore(self) -> None:
        """Bring the folder to the state of the store; keep work that the store lacks.

        Several processes of a machine may call this; one of them copies.

        Raises:
            CheckpointError: Both have work that the other lacks.
            StoreError: The store refuses.
        """
        with cache.locked(self.path):
            manifest = read_manifest(self.bucket)
            if manifest is None or self._is_noted(manifest):
                return
            if manifest.kind != "run":
                raise StoreError(
                    f"{self.bucket.uri} must be a run; it is a {manifest.kind}. Name another URI."
                )
            if self._is_ahead():
                raise CheckpointError(
                    f"{self.bucket.uri} was published by another training since, and {self.path} holds"
                    " checkpoints that it lacks. Remove that folder to resume from the store."
                )
            partial = cache.partial(self.path)
            partial.mkdir(exist_ok=True)
            _keep_only(partial, manifest)  # of an earlier copy that was broken off
            fill(partial, self.bucket, manifest.files)
            put_in_place(partial, self.path)
            self._remember(manifest)

    def publish(self) -> None:
        """Publish what the folder holds, the manifest last; a finished upload is not repeated.

        Raises:
            StoreError: The store refuses, or another training has published; the folder stays as it is.
        """
        try:
            self._publish()
        except (StoreError, DataError) as error:
            raise StoreError(
                f"{error} The run is in {self.path}; `resume=True` continues it and sends what is missing."
            ) from None

    def _publish(self) -> None:
        before = read_manifest(self.bucket)
        if before is None:
            self._check_ours()
        elif not self._is_noted(before):
            raise StoreError(f"{self.bucket.uri} was published by somebody else meanwhile.")
        files, sources = {}, {}
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
        there = {digest_of(name) for name in self.bucket.sizes()}
        manifest = StoreManifest("run", files, frozenset((earlier - sources.keys()) & there))
        self._remember(before, manifest)
        send(self.bucket, manifest, sources, before)
        self._remember(manifest)

    def _set_aside(self) -> None:
        """Rename the folder, which may be the last copy of its run, unless a training holds its lock."""
        published = next(filter(None, self._noted()))
        aside = self.path.with_name(f"{self.path.name}-{published.digest[:12]}")
        with suppress(FileNotFoundError, BlockingIOError), (self.path / ".lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(aside, ignore_errors=True)  # the same run, set aside before
            self.path.rename(aside)

    def _files(self) -> Iterator[Path]:
        """Yield the files of the run, without hidden ones and those of a dataset."""
        for folder, names, files in os.walk(self.path):
            left_out = _LOCAL if Path(folder) == self.path else None
            names[:] = sorted(name for name in names if not name.startswith(".") and name != left_out)
            yield from (Path(folder) / name for name in sorted(files) if not name.startswith("."))

    def _content(self, path: Path) -> tuple[Content, Path | bytes]:
        """The content of a file, and what to send: bytes of files that may grow meanwhile."""
        if path.relative_to(self.path).parts[0] not in _LASTING or path.name == "latest":
            data = path.read_bytes()
            return Content.of_bytes(data), data
        status = path.stat()
        key = (status.st_ino, status.st_size, status.st_mtime_ns)
        if self._known.get(path, (None,))[0] != key:
            self._known[path] = key, Content.of(path)
        return self._known[path][1], path

    def _check_ours(self) -> None:
        try:
            check_ours(self.bucket)
        except DataError as error:
            raise CheckpointError(str(error)) from None

    def _is_ahead(self) -> bool:
        """Whether the folder holds weights that were never published."""
        own = {
            path.relative_to(self.path).as_posix(): Content.of(path)
            for folder in _WEIGHTS
            for path in (self.path / folder).rglob("manifest.json")
            if not any(part.startswith(".") for part in path.relative_to(self.path).parts)
        }
        published = next(iter(self._noted()), None)
        return bool(own) and (published is None or not own.items() <= published.files.items())

    def _is_noted(self, manifest: StoreManifest) -> bool:
        return any(noted is not None and noted.digest == manifest.digest for noted in self._noted())

    def _noted(self) -> list[StoreManifest | None]:
        """The manifest that the folder has published or was copied from, and one that was to follow."""
        if not self.path.is_dir():
            return []
        with suppress(FileNotFoundError):
            texts = json.loads(self._note.read_text(encoding="utf-8"))
            return [text and StoreManifest.of(text.encode(), str(self._note)) for text in texts]
        return []

    def _remember(self, *manifests: StoreManifest | None) -> None:
        with appearing(self._note) as file:
            texts = [manifest and manifest.to_json().decode() for manifest in manifests]
            file.write(json.dumps(texts).encode())


def _keep_only(folder: Path, manifest: StoreManifest) -> None:
    """Remove files that a manifest does not list, and empty folders."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            with suppress(OSError):  # it is not empty
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in manifest.files:
            path.unlink()
