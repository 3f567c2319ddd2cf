"""Reading and writing the objects of a bucket; failures are one sentence."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Protocol

from widenet.errors import StoreError
from widenet.stores.faults import Absent, sentences
from widenet.stores.uri import Uri

_LARGEST_READ = 2**28
"""Bytes of the largest object that is read into memory: a manifest of about a million files."""


class Store(Protocol):
    """Objects by their URIs.

    All methods raise Fault if the store refuses, cannot be reached, or has no such bucket.
    """

    def blocks(self, uri: Uri) -> Iterator[bytes]:
        """Yield the content of an object; raises Absent."""

    def version(self, uri: Uri) -> str:
        """Return a text that changes when an object does; raises Absent."""

    def sizes(self, uri: Uri, recursive: bool) -> dict[str, int]:
        """Return the sizes of the objects below a URI, by key; of all, or of one folder."""

    def upload(self, uri: Uri, source: Path | bytes) -> None:
        """Copy a file or bytes to an object; it appears whole, or not at all."""

    def delete(self, uri: Uri) -> None:
        """Remove an object; raises Absent."""


@dataclass(frozen=True)
class Content:
    """Size and SHA-256 of a file."""

    size_bytes: int
    sha256: str

    @classmethod
    def of(cls, file: Path) -> "Content":
        """Read a file."""
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
            return cls(opened.tell(), digest)

    @classmethod
    def of_bytes(cls, data: bytes) -> "Content":
        """Of a file with these bytes."""
        return cls(len(data), hashlib.sha256(data).hexdigest())


class Bucket:
    """The objects at and below a URI.

    All methods raise StoreError if the store refuses, or cannot be reached within about a minute.

    Attributes:
        uri: The URI.
    """

    def __init__(self, uri: Uri) -> None:
        self.uri = uri
        with sentences(uri):
            self._store = _store(uri.scheme)

    def read(self, name: str) -> bytes | None:
        """Read a small object below the URI; None if there is none, in a bucket that exists."""
        data = bytearray()
        try:
            with sentences(self.uri):
                for block in self._store.blocks(self.uri / name):
                    data += block
                    if len(data) > _LARGEST_READ:
                        raise StoreError(f"{self.uri}/{name} is too large to be of widenet. Remove it.")
        except Absent:
            return None
        return bytes(data)

    def version(self) -> str | None:
        """Return a text that changes when the object at the URI does; None if there is no such object."""
        try:
            with sentences(self.uri):
                return self._store.version(self.uri)
        except Absent:
            return None

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all objects below the URI, by key relative to it."""
        start = f"{self.uri.key}/"
        with sentences(self.uri):
            sizes = self._store.sizes(self.uri, recursive=True)
        return {key.removeprefix(start): size for key, size in sizes.items() if key.startswith(start)}

    def matches(self) -> list[Uri]:
        """Return the URIs of the objects that match the URI's key as a pattern, in order."""
        parts = self.uri.key.split("/")
        above = [*takewhile(lambda part: not set(part) & set("*["), parts)]
        folder = Uri(self.uri.scheme, self.uri.bucket, "/".join(above))
        with sentences(self.uri):
            keys = self._store.sizes(folder, recursive=len(parts) > len(above) + 1)
        found = [key for key in keys if is_plain(key) and PurePosixPath(f"/{key}").match(f"/{self.uri.key}")]
        return [Uri(self.uri.scheme, self.uri.bucket, key) for key in sorted(found)]

    def download(self, name: str, file: Path, most: int | None = None) -> Content | None:
        """Copy an object below the URI, or the one at it for "", into a file; None if there is none.

        It stops after `most` bytes and a block, for what is longer is not what a manifest lists.
        """
        digest, size = hashlib.sha256(), 0
        try:
            with file.open("wb") as target, sentences(self.uri):
                for block in self._store.blocks(self._object(name)):
                    digest.update(block)
                    size += target.write(block)
                    if most is not None and size > most:
                        break
        except Absent:
            return None
        return Content(size, digest.hexdigest())

    def upload(self, name: str, source: Path | bytes) -> None:
        """Copy a file or bytes to an object below the URI, or to the one at it for "".

        The object appears whole, or not at all.
        """
        with sentences(self.uri):
            self._store.upload(self._object(name), source)

    def delete(self, name: str) -> None:
        """Remove an object below the URI, if there is one."""
        with suppress(Absent), sentences(self.uri):
            self._store.delete(self.uri / name)

    def _object(self, name: str) -> Uri:
        return self.uri / name if name else self.uri


def is_plain(name: str) -> bool:
    """Return whether a key or the name of a file is relative, without empty parts, "." and ".."."""
    return not set(name.split("/")) & {"", ".", ".."} and "\\" not in name and name.isprintable()


def _store(scheme: str) -> Store:
    if scheme == "abfs":
        from widenet.stores.azure import AzureStore

        return AzureStore()
    from widenet.stores.arrow import ArrowStore

    return ArrowStore(scheme)
