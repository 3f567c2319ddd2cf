"""What goes wrong in a store, in one sentence without the words of the store: they may hold a secret."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from widenet.errors import StoreError
from widenet.stores.uri import Uri

CONNECT_SECONDS, SILENT_SECONDS, ATTEMPTS = 5, 20, 3
"""Limits of a request: with them a store that does not answer is reported after about a minute."""

Kind = Literal["no bucket", "no credentials", "refused", "another region", "unreachable", "other"]

_AWS_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE")
_TO_SET = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfs": "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
}
_NAMES_SERVER = {
    "s3": "AWS_ENDPOINT_URL if it is set",
    "gs": "CLOUD_STORAGE_EMULATOR_ENDPOINT if it is set",
    "abfs": "the account that the environment names",
}


class Fault(Exception):  # noqa: N818 - Bucket makes a StoreError of it
    """An error of a store.

    Attributes:
        kind: What it is.
        code: The store's name for it: a word, or a status of HTTP.
    """

    def __init__(self, kind: Kind, code: str = "unknown error") -> None:
        super().__init__(code)
        self.kind = kind
        self.code = code


class Absent(Exception):  # noqa: N818 - often no error
    """There is no such object in a bucket that exists."""


@contextmanager
def sentences(uri: Uri) -> Iterator[None]:
    """Raise StoreError for a fault within the block."""
    try:
        yield
    except Fault as fault:
        raise _sentence(uri, fault) from None


def _sentence(uri: Uri, fault: Fault) -> StoreError:
    bucket = "container" if uri.scheme == "abfs" else "bucket"
    to_set = f"set {_TO_SET[uri.scheme]}."
    match fault.kind:
        case "no bucket":
            said = f"the {bucket} does not exist. Check its name, or make it."
        case "no credentials":
            said = f"the environment names no credentials that can be used: {to_set}"
        case "refused" if uri.scheme == "s3" and not any(name in os.environ for name in _AWS_CREDENTIALS):
            said = f"the store refuses access ({fault.code}). The environment names no credentials: {to_set}"
        case "refused":
            remedy = f"Check that the credentials in the environment may use this {bucket}."
            said = f"the store refuses access ({fault.code}). {remedy}"
        case "another region":
            said = f"the {bucket} is in another region. Name it with AWS_REGION."
        case "unreachable":
            server = _NAMES_SERVER[uri.scheme]
            said = f"the store cannot be reached, or does not answer. Check the network, and {server}."
        case "other":
            said = f"the store reports an error ({fault.code}). Try again."
    return StoreError(f"{uri}: {said}")
