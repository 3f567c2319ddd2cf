"""The objects of a bucket in S3, Google Cloud Storage or Azure, by obstore."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict
from pydantic import Field as Limits

from widenet.errors import StoreError
from widenet.late_imports import installed, optional
from widenet.stores.uri import Uri

CONNECT, SILENT, RETRIES = "5s", "20s", 2
"""Limits of a request: with them a store that does not answer is reported after about a minute."""
_LARGEST_READ = 2**28
"""Bytes of the largest object that is read into memory: a manifest of about a million files."""
_BLOCK_BYTES = 8 * 2**20
_LONGEST_ERROR = 400


class Content(BaseModel):
    """Size and SHA-256 of a file."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    bytes: Annotated[int, Limits(ge=0)]
    sha256: Annotated[str, Limits(pattern=r"^[0-9a-f]{64}$")]

    @classmethod
    def of(cls, file: Path) -> "Content":
        """Read a file."""
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
            return cls(bytes=opened.tell(), sha256=digest)


class Bucket:
    """The objects at and below a URI.

    All methods raise StoreError, with the words of obstore, if the store refuses, cannot be reached within
    about a minute, or has no such bucket.

    Attributes:
        uri: The URI.
    """

    def __init__(self, uri: Uri) -> None:
        self.uri = uri
        with optional("obstore", "stores"):
            import obstore  # noqa: F401
        with self._faults():
            self._store = _store(uri)

    def read(self, name: str) -> bytes | None:
        """Read a small object below the URI; None if there is none."""
        with self._faults():
            found = self._get(self._key(name))
            if found is None:
                return None
            is_small = found.meta["size"] <= _LARGEST_READ
            StoreError.require(is_small, "is too large to be of widenet", place=self.uri / name)
            return bytes(found.bytes())

    def version(self) -> str | None:
        """Return a text that changes when the object at the URI does; None if there is no such object."""
        with self._faults():
            try:
                facts = self._store.head(self.uri.key)
            except FileNotFoundError:
                self._check_bucket()
                return None
            return f"{facts['size']} {facts['e_tag']} {facts['version']} {facts['last_modified']}"

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all objects below the URI, by key relative to it."""
        start = f"{self.uri.key}/"
        with self._faults():
            objects = [each for some in self._store.list(self.uri.key, chunk_size=1000) for each in some]
        return {each["path"].removeprefix(start): each["size"] for each in objects}

    def matches(self) -> list[Uri]:
        """Return the URIs of the objects that match the URI's key as a pattern, in order."""
        above = takewhile(lambda part: not set(part) & set("*["), self.uri.key.split("/"))
        with self._faults():
            found = [
                each for some in self._store.list("/".join(above) or None, chunk_size=1000) for each in some
            ]
        keys = sorted(each["path"] for each in found)
        matching = [key for key in keys if PurePosixPath(f"/{key}").match(f"/{self.uri.key}")]
        return [Uri(self.uri.scheme, self.uri.bucket, key) for key in matching]

    def download(self, name: str, file: Path, most: int | None = None) -> Content | None:
        """Copy an object below the URI, or the one at it for "", into a file; None if there is none.

        It stops after `most` bytes and a block, for what is longer is not what a manifest lists.
        """
        digest, size = hashlib.sha256(), 0
        with file.open("wb") as target, self._faults():
            found = self._get(self._key(name))
            if found is None:
                return None
            for block in found.stream(min_chunk_size=_BLOCK_BYTES):
                digest.update(block)
                size += target.write(block)
                if most is not None and size > most:
                    break
        return Content(bytes=size, sha256=digest.hexdigest())

    def upload(self, name: str, source: Path | bytes) -> None:
        """Copy a file or bytes to an object below the URI, or to the one at it for "".

        The object appears whole, or not at all.
        """
        with self._faults():
            self._store.put(self._key(name), source)

    def delete(self, name: str) -> None:
        """Remove an object below the URI, if there is one."""
        with self._faults():
            try:
                self._store.delete(self._key(name))
            except FileNotFoundError:
                self._check_bucket()

    def _key(self, name: str) -> str:
        return f"{self.uri.key}/{name}" if name else self.uri.key

    def _get(self, key: str) -> Any:
        try:
            return self._store.get(key)
        except FileNotFoundError:
            return self._check_bucket()

    def _check_bucket(self) -> None:
        """Raise the store's error if the bucket does not exist: for an object that does not, all say less."""
        next(iter(self._store.list(self.uri.key, chunk_size=1)), None)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Make a StoreError of an error of the library: its text without queries, which may hold a secret."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, FileNotFoundError, ValueError) as error:
            text = str(error).partition("\n\nDebug source")[0]
            text = " ".join(re.sub(r"<[^>]*>|\?\S*", " ", text).split())
            raise StoreError(text[:_LONGEST_ERROR], place=self.uri) from None


def _store(uri: Uri) -> Any:
    """Open the bucket of a URI with what the environment names."""
    from obstore.store import AzureStore, GCSStore, S3Store

    client = {"allow_http": True, "connect_timeout": CONNECT, "read_timeout": SILENT, "timeout": "1h"}
    options: dict[str, Any] = {"client_options": client, "retry_config": {"max_retries": RETRIES}}
    if uri.scheme == "gs":
        return GCSStore(uri.bucket, **options)
    if uri.scheme == "abfs":
        parts = _connection()
        names = {"account_name": "accountname", "account_key": "accountkey", "endpoint": "blobendpoint"}
        names["sas_key"] = "sharedaccesssignature"
        options |= {name: parts[own] for name, own in names.items() if own in parts}
        return AzureStore(uri.bucket, **options)
    if os.environ.get("AWS_PROFILE"):
        with installed("boto3"):
            from obstore.auth.boto3 import Boto3CredentialProvider

        options["credential_provider"] = Boto3CredentialProvider()
    return S3Store(uri.bucket, **options)


def _connection() -> dict[str, str]:
    """Return the parts of Azure's connection string, which hold secrets; none without one."""
    text = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    pairs = (part.partition("=")[::2] for part in text.split(";") if part)
    return {name.strip().lower(): value for name, value in pairs}
