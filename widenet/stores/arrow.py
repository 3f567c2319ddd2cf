"""S3 and Google Cloud Storage through Arrow's file systems."""

import ctypes
import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from widenet.stores.faults import ATTEMPTS, CONNECT_SECONDS, SILENT_SECONDS, Absent, Fault
from widenet.stores.servers import endpoint
from widenet.stores.uri import Uri

_PIECE_BYTES = 64 * 2**20
"""Bytes of a file that wait to be sent: Arrow sends them in parts of 10 MB, several at a time."""

_READ_BYTES = 8 * 2**20
_AWS_CODE = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))?")
_GOOGLE_CODE = re.compile(r"\b(PERMISSION_DENIED|UNAUTHENTICATED|NOT_FOUND|UNAVAILABLE|DEADLINE_EXCEEDED)\b")
_REFUSED = {"ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "INVALID_CLIENT_TOKEN_ID", "SIGNATURE_DOES_NOT_MATCH"}
_REFUSED |= {"EXPIRED_TOKEN", "INVALID_SIGNATURE", "REQUEST_EXPIRED", "PERMISSION_DENIED", "UNAUTHENTICATED"}
_UNREACHABLE = {"NETWORK_CONNECTION", "REQUEST_TIMEOUT", "UNAVAILABLE", "DEADLINE_EXCEEDED", "SLOW_DOWN"}


class ArrowStore:
    """A store that Arrow has a file system for; see `bucket.Store`."""

    def __init__(self, scheme: str) -> None:
        with _faults():
            self._system = _file_system(scheme)

    def blocks(self, uri: Uri) -> Iterator[bytes]:
        """Yield the content of an object."""
        with self._expecting(uri), self._system.open_input_stream(uri.place) as stream:
            while block := stream.read(_READ_BYTES):
                yield block

    def version(self, uri: Uri) -> str:
        """Return a text that changes when an object does."""
        if uri.scheme == "gs":
            return self._facts(uri)
        with self._expecting(uri), self._system.open_input_file(uri.place) as stream:
            facts = sorted((stream.metadata() or {}).items())
            return f"{stream.size()} {facts}"

    def sizes(self, uri: Uri, recursive: bool) -> dict[str, int]:
        """Return the sizes of the objects below a URI, by key; of all, or of one folder."""
        from pyarrow.fs import FileSelector, FileType

        self._check_bucket(uri)
        selector = FileSelector(uri.place, allow_not_found=True, recursive=recursive)
        with _faults():
            infos = self._system.get_file_info(selector)
        start = f"{uri.bucket}/"
        return {info.path.removeprefix(start): info.size for info in infos if info.type == FileType.File}

    def upload(self, uri: Uri, source: Path | bytes) -> None:
        """Copy a file or bytes to an object; it appears whole, or not at all."""
        with _faults():
            stream = self._system.open_output_stream(uri.place)
        try:
            for block in [source] if isinstance(source, bytes) else _pieces(source):
                with _faults():
                    stream.write(block)
                    if len(block) == _PIECE_BYTES:
                        stream.flush()  # waits, so that memory holds one piece
            with _faults():
                stream.close()
        except BaseException:
            _abandon(stream)
            raise

    def delete(self, uri: Uri) -> None:
        """Remove an object."""
        with self._expecting(uri):
            self._system.delete_file(uri.place)

    def _facts(self, uri: Uri) -> str:
        """The size of an object of Google, and the time at which it was stored, in nanoseconds."""
        from pyarrow.fs import FileType

        with self._expecting(uri):
            info = self._system.get_file_info(uri.place)
            if info.type != FileType.File:
                raise FileNotFoundError
        return f"{info.size} {info.mtime_ns}"

    @contextmanager
    def _expecting(self, uri: Uri) -> Iterator[None]:
        """Raise Absent if there is no such object, in a bucket that exists."""
        with _faults():
            try:
                yield
            except FileNotFoundError:
                self._check_bucket(uri)
                raise Absent from None

    def _check_bucket(self, uri: Uri) -> None:
        from pyarrow.fs import FileType

        try:
            with _faults():
                info = self._system.get_file_info(uri.bucket)
        except Fault as fault:
            if fault.kind != "refused":  # who may use objects need not be allowed to ask for their bucket
                raise
        else:
            if info.type == FileType.NotFound:
                raise Fault("no bucket")


def _file_system(scheme: str) -> Any:
    from pyarrow import fs

    if scheme == "gs":
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=ATTEMPTS * SILENT_SECONDS))
    return fs.S3FileSystem(
        endpoint_override=next(iter(endpoint(scheme)), None),
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None,
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENT_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
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
def _faults() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise Fault("no bucket") from None
    except (OSError, ValueError) as error:
        raise _fault(str(error)) from None


def _fault(words: str) -> Fault:
    aws, google = _AWS_CODE.search(words), _GOOGLE_CODE.search(words)
    code = aws[1] if aws else google[1] if google else "unknown error"
    status = aws[2] if aws and aws[2] else ""
    if code in ("NO_SUCH_BUCKET", "NOT_FOUND"):
        return Fault("no bucket")
    if status in ("301", "307", "308") or code in ("PERMANENT_REDIRECT", "AUTHORIZATION_HEADER_MALFORMED"):
        return Fault("another region")
    if code in _REFUSED or status in ("401", "403"):
        return Fault("refused", code)
    if "OAuth2 access token" in words:
        return Fault("no credentials")
    if code in _UNREACHABLE:
        return Fault("unreachable")
    return Fault("other", f"{code}, HTTP status {status}" if status else code)
