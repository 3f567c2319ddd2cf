"""Reading and writing the objects of a bucket through Arrow's file systems; failures are one sentence."""

import ctypes
import hashlib
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from widenet.errors import StoreError
from widenet.stores.uri import Uri

_CONNECT_SECONDS, _SILENT_SECONDS, _ATTEMPTS = 5, 20, 3
"""Limits of a request: with them a store that does not answer is reported after about a minute."""

_PIECE_BYTES = 64 * 2**20
"""Bytes of a file that wait to be sent: Arrow sends them in parts of 10 MB, several at a time."""

_READ_BYTES = 8 * 2**20
_LARGEST_READ = 2**28
"""Bytes of the largest object that is read into memory: a manifest of about a million files."""
_OF_A_STORE = re.compile("AWS Error|google::cloud::Status")
_AWS_CODE = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))?")
_GOOGLE_CODE = re.compile(r"\b(PERMISSION_DENIED|UNAUTHENTICATED|NOT_FOUND|UNAVAILABLE|DEADLINE_EXCEEDED)\b")
_AWS_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE")
_REFUSED = {"ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID", "SIGNATURE_DOES_NOT_MATCH"}
_REFUSED |= {"EXPIRED_TOKEN", "INVALID_SIGNATURE", "REQUEST_EXPIRED", "PERMISSION_DENIED", "UNAUTHENTICATED"}
_UNREACHABLE = {"NETWORK_CONNECTION", "REQUEST_TIMEOUT", "UNAVAILABLE", "DEADLINE_EXCEEDED", "SLOW_DOWN"}


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
        with _sentences(uri):
            self._system = _file_system(uri.scheme)

    def read(self, name: str) -> bytes | None:
        """Read a small object below the URI; None if there is none, in a bucket that exists."""
        try:
            place = f"{self.uri.place}/{name}"
            with _sentences(self.uri, True), self._system.open_input_stream(place) as stream:
                data: bytes = stream.read(_LARGEST_READ + 1)
                if len(data) > _LARGEST_READ:
                    raise StoreError(f"{self.uri}/{name} is too large to be of widenet. Remove it.")
                return data
        except FileNotFoundError:
            self._check_bucket()
            return None

    def version(self) -> str | None:
        """Return a text that changes when the object at the URI does; None if there is no such object."""
        try:
            with _sentences(self.uri, True), self._system.open_input_file(self.uri.place) as stream:
                facts = sorted((stream.metadata() or {}).items())
                return f"{stream.size()} {facts}"
        except FileNotFoundError:
            self._check_bucket()
            return None

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all objects below the URI, by key relative to it."""
        start = f"{self.uri.place}/"
        return {
            place.removeprefix(start): size
            for place, size in self._listing(self.uri.place).items()
            if place.startswith(start)
        }

    def matches(self) -> list[Uri]:
        """Return the URIs of the objects that match the URI's key as a pattern, in order."""
        parts = self.uri.key.split("/")
        above = [*takewhile(lambda part: not set(part) & set("*["), parts)]
        found = [
            place.removeprefix(f"{self.uri.bucket}/")
            for place in self._listing("/".join([self.uri.bucket, *above]), len(parts) > len(above) + 1)
            if is_plain(place) and PurePosixPath(f"/{place}").match(f"/{self.uri.place}")
        ]
        return [Uri(self.uri.scheme, self.uri.bucket, key) for key in sorted(found)]

    def _listing(self, place: str, recursive: bool = True) -> dict[str, int]:
        """The sizes of the objects below a bucket and prefix, by bucket and key; of all, or of one folder."""
        from pyarrow.fs import FileSelector, FileType

        self._check_bucket()
        with _sentences(self.uri):
            infos = self._system.get_file_info(FileSelector(place, allow_not_found=True, recursive=recursive))
        return {info.path: info.size for info in infos if info.type == FileType.File}

    def download(self, name: str, file: Path, most: int | None = None) -> Content | None:
        """Copy an object below the URI, or the one at it for "", into a file; None if there is none.

        It stops after `most` bytes and a block, for what is longer is not what a manifest lists.
        """
        digest, size = hashlib.sha256(), 0
        place = f"{self.uri.place}/{name}" if name else self.uri.place
        try:
            with (
                _sentences(self.uri, True),
                self._system.open_input_stream(place) as stream,
                file.open("wb") as target,
            ):
                while block := stream.read(_READ_BYTES):
                    digest.update(block)
                    size += target.write(block)
                    if most is not None and size > most:
                        break
        except FileNotFoundError:
            return None
        return Content(size, digest.hexdigest())

    def upload(self, name: str, source: Path | bytes) -> None:
        """Copy a file or bytes to an object below the URI, or to the one at it for "".

        The object appears whole, or not at all.
        """
        place = f"{self.uri.place}/{name}" if name else self.uri.place
        with _sentences(self.uri):
            stream = self._system.open_output_stream(place)
        try:
            for block in [source] if isinstance(source, bytes) else _pieces(source):
                with _sentences(self.uri):
                    stream.write(block)
                    if len(block) == _PIECE_BYTES:
                        stream.flush()  # waits, so that memory holds one piece
            with _sentences(self.uri):
                stream.close()
        except BaseException:
            _abandon(stream)
            raise

    def delete(self, name: str) -> None:
        """Remove an object below the URI, if there is one."""
        try:
            with _sentences(self.uri, True):
                self._system.delete_file(f"{self.uri.place}/{name}")
        except FileNotFoundError:
            pass

    def _check_bucket(self) -> None:
        """Raise StoreError if there is no such bucket."""
        from pyarrow.fs import FileType

        with _sentences(self.uri):
            info = self._system.get_file_info(self.uri.bucket)
        if info.type == FileType.NotFound:
            raise _no_bucket(self.uri)


def is_plain(name: str) -> bool:
    """Return whether a key or the name of a file is relative, without empty parts, "." and ".."."""
    return not set(name.split("/")) & {"", ".", ".."} and "\\" not in name and name.isprintable()


def endpoint(scheme: str) -> tuple[str, ...]:
    """Return the address of a server that the environment names in place of the usual one, if any."""
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    return (named,) if scheme == "s3" and named else ()


def _file_system(scheme: str) -> Any:
    from pyarrow import fs

    if scheme == "gs":
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=_ATTEMPTS * _SILENT_SECONDS))
    return fs.S3FileSystem(
        endpoint_override=next(iter(endpoint(scheme)), None),
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_SILENT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        allow_delayed_open=True,  # a small object is one request
        background_writes=True,  # several parts at a time
    )


def _pieces(file: Path) -> Iterator[memoryview]:
    """Yield the content of a file in pieces."""
    with file.open("rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        if not size:
            return
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            for start in range(0, size, _PIECE_BYTES):
                with view[start : start + _PIECE_BYTES] as piece:
                    yield piece


def _abandon(stream: Any) -> None:
    """Leave an upload incomplete, and so invisible.

    Arrow has no call for this: closing the stream would complete the upload, and so would freeing it.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))


@contextmanager
def _sentences(uri: Uri, may_lack: bool = False) -> Iterator[None]:
    """Raise StoreError for an error of the store; never repeats its words, which may hold what is secret.

    Args:
        uri: The URI.
        may_lack: Whether FileNotFoundError says that there is no such object; else there is no such bucket.
    """
    try:
        yield
    except FileNotFoundError:
        if may_lack:
            raise
        raise _no_bucket(uri) from None
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None and not _OF_A_STORE.search(str(error)):
            raise  # of the local disk
        raise _problem(uri, str(error)) from None


def _problem(uri: Uri, words: str) -> StoreError:
    aws, google = _AWS_CODE.search(words), _GOOGLE_CODE.search(words)
    code = aws[1] if aws else google[1] if google else "unknown error"
    status = aws[2] if aws and aws[2] else ""
    if code in ("NO_SUCH_BUCKET", "NOT_FOUND"):
        return _no_bucket(uri)
    if status in ("301", "307", "308") or code in ("PERMANENT_REDIRECT", "AUTHORIZATION_HEADER_MALFORMED"):
        return StoreError(f"{uri}: the bucket is in another region. Name it with AWS_REGION.")
    if code in _REFUSED or status in ("401", "403"):
        if uri.scheme == "s3" and not any(name in os.environ for name in _AWS_CREDENTIALS):
            remedy = "The environment names no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        else:
            remedy = "Check that the credentials in the environment may use this bucket."
        return StoreError(f"{uri}: the store refuses access ({code}). {remedy}")
    if "OAuth2 access token" in words:
        return StoreError(
            f"{uri}: Google's library finds no credentials in the environment. Set"
            " GOOGLE_APPLICATION_CREDENTIALS."
        )
    if code in _UNREACHABLE:
        endpoint = ", and AWS_ENDPOINT_URL if it is set" if uri.scheme == "s3" else ""
        return StoreError(
            f"{uri}: the store cannot be reached, or does not answer. Check the network{endpoint}."
        )
    reason = f"{code}, HTTP status {status}" if status else code
    return StoreError(f"{uri}: the store reports an error ({reason}). Try again.")


def _no_bucket(uri: Uri) -> StoreError:
    return StoreError(f"{uri}: the bucket does not exist. Check its name, or make it.")
