"""Azure Blob Storage through Microsoft's library: an object of Arrow's is seen before it is whole."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widenet.errors import OptionError
from widenet.late_imports import optional
from widenet.stores.faults import ATTEMPTS, CONNECT_SECONDS, SILENT_SECONDS, Absent, Fault
from widenet.stores.servers import account, connection
from widenet.stores.uri import Uri

if TYPE_CHECKING:
    from azure.core.exceptions import AzureError
    from azure.storage.blob import BlobClient, BlobProperties, BlobServiceClient

_WHOLE_BYTES, _BLOCK_BYTES, _AT_A_TIME = 8 * 2**20, 16 * 2**20, 4
"""A file up to the first size is one request; a larger one is sent in blocks, several at a time."""

_ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
_NO_CONTAINER = {"ContainerNotFound", "ContainerBeingDeleted", "InvalidResourceName"}


class AzureStore:
    """The containers of the account that the environment names; see `bucket.Store`."""

    def __init__(self) -> None:
        self._service = _service()

    def blocks(self, uri: Uri) -> Iterator[bytes]:
        """Yield the content of an object."""
        with _faults():
            yield from self._blob(uri).download_blob().chunks()

    def version(self, uri: Uri) -> str:
        """Return a text that changes when an object does."""
        with _faults():
            facts = self._blob(uri).get_blob_properties()
        if _is_folder(facts):
            raise Absent
        return f"{facts.size} {facts.etag} {facts.last_modified}"

    def sizes(self, uri: Uri, recursive: bool) -> dict[str, int]:
        """Return the sizes of the objects below a URI, by key; of all, or of one folder."""
        from azure.storage.blob import BlobProperties

        container = self._service.get_container_client(uri.bucket)
        start = f"{uri.key}/" if uri.key else ""
        listed = container.list_blobs if recursive else container.walk_blobs
        with _faults():
            blobs = [blob for blob in listed(start, include=["metadata"]) if isinstance(blob, BlobProperties)]
        return {blob.name: blob.size for blob in blobs if not _is_folder(blob)}

    def upload(self, uri: Uri, source: Path | bytes) -> None:
        """Copy a file or bytes to an object; it appears whole, or not at all.

        The store keeps blocks aside until the last request, which makes them the object.
        """
        blob = self._blob(uri)
        if isinstance(source, bytes):
            with _faults():
                blob.upload_blob(source, overwrite=True)
            return
        with source.open("rb") as file, _faults():
            size = os.fstat(file.fileno()).st_size
            blob.upload_blob(file, length=size, overwrite=True, max_concurrency=_AT_A_TIME)

    def delete(self, uri: Uri) -> None:
        """Remove an object."""
        with _faults():
            self._blob(uri).delete_blob()

    def _blob(self, uri: Uri) -> "BlobClient":
        return self._service.get_blob_client(uri.bucket, uri.key)


def _service() -> "BlobServiceClient":
    with optional("azure-storage-blob", "azure"):
        from azure.storage.blob import BlobServiceClient, ExponentialRetry

    logging.getLogger("azure").addHandler(logging.NullHandler())  # else it writes to stderr what it tries
    options = {
        "connection_timeout": CONNECT_SECONDS,
        "read_timeout": SILENT_SECONDS,
        "retry_policy": ExponentialRetry(1, 2, ATTEMPTS - 1, random_jitter_range=1),
        "max_single_put_size": _WHOLE_BYTES,
        "max_block_size": _BLOCK_BYTES,
        "max_single_get_size": _BLOCK_BYTES,
        "max_chunk_get_size": _BLOCK_BYTES,
    }
    if connection():
        try:
            return BlobServiceClient.from_connection_string(connection(), **options)
        except ValueError:
            raise OptionError(
                "AZURE_STORAGE_CONNECTION_STRING must be the connection string of an account; it is not"
                " repeated here. Copy it again."
            ) from None
    if not account():
        raise Fault("no credentials")
    if not _ACCOUNT.fullmatch(account()):
        raise OptionError("AZURE_STORAGE_ACCOUNT_NAME must be 3 to 24 letters, a to z, and digits.")
    return BlobServiceClient(f"https://{account()}.blob.core.windows.net", _credential(), **options)


def _credential() -> Any:
    """The key or signature of the environment, or else the identity of a user, a service or the machine."""
    if key := os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"):
        return key
    if signature := os.environ.get("AZURE_STORAGE_SAS_TOKEN"):
        from azure.core.credentials import AzureSasCredential

        return AzureSasCredential(signature.removeprefix("?"))
    with optional("azure-identity", "azure"):
        from azure.identity import DefaultAzureCredential

    return DefaultAzureCredential()


def _is_folder(facts: "BlobProperties") -> bool:
    """Whether a blob is a folder, of which accounts with hierarchical names make one for each prefix."""
    return (facts.metadata or {}).get("hdi_isfolder") == "true"


@contextmanager
def _faults() -> Iterator[None]:
    from azure.core.exceptions import AzureError

    try:
        yield
    except AzureError as error:
        if _code(error) == "BlobNotFound":
            raise Absent from None
        raise _fault(error) from None


def _fault(error: "AzureError") -> Fault:
    from azure.core import exceptions

    code = _code(error)
    status = getattr(error, "status_code", None)
    if code in _NO_CONTAINER:
        return Fault("no bucket")
    if isinstance(error, exceptions.ClientAuthenticationError) and status is None:
        return Fault("no credentials")
    if status in (401, 403):
        return Fault("refused", code)
    if isinstance(error, exceptions.ServiceRequestError | exceptions.ServiceResponseError):
        return Fault("unreachable")
    return Fault("other", code)


def _code(error: "AzureError") -> str:
    """The store's name for an error; a HEAD request has it in the head of its answer alone."""
    code = getattr(error, "error_code", None)
    text = str(getattr(code, "value", code))
    return text if text.isalnum() else "unknown error"
