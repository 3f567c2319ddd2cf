"""URIs of object stores: which texts are URIs, and which URIs are accepted; loads no library."""

import os
import re
from dataclasses import dataclass

from widenet.errors import OptionError

_URI = re.compile(r"(s3|gs|abfss?):/", re.IGNORECASE)
_OTHER = re.compile(
    r"(s3a|s3n|gcs|az|adl|wasbs?|hdfs|https?|ftp|file):/", re.IGNORECASE
)  # a folder of such a name would be made otherwise
_FORMS = "s3://BUCKET/KEY, gs://BUCKET/KEY or abfs://CONTAINER/KEY"
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LONGEST_KEY_BYTES = 900
"""Stores allow 1,024 bytes; the names of the objects below the key take the rest."""


@dataclass(frozen=True)
class Uri:
    """The place of an object, or of all objects below a prefix.

    Attributes:
        scheme: "s3", "gs" or "abfs".
        bucket: Name of the bucket, or of the container.
        key: Key or prefix without slashes at its ends.
    """

    scheme: str
    bucket: str
    key: str

    @classmethod
    def of(cls, value: str | os.PathLike[str]) -> "Uri":
        """Read a URI, or the path that `Path` makes of one ("s3:/bucket/key").

        Raises:
            OptionError: It is not of an accepted form. The message does not repeat it, because it may
                hold a secret.
        """
        scheme, _, rest = os.fspath(value).partition(":")
        bucket, _, key = rest.lstrip("/").partition("/")
        parts = [part for part in key.strip("/").split("/") if part != "."]
        is_plain = key.isprintable() and not set(key) & set("?#\\") and not set(parts) & {"", ".."}
        if not (_BUCKET.fullmatch(bucket) and is_plain and len(key.encode()) <= _LONGEST_KEY_BYTES):
            raise OptionError(
                f"a URI must be {_FORMS}, without an account, a user, a password, a query, a fragment, empty"
                f' parts and "..", and have a key of at most {_LONGEST_KEY_BYTES} bytes. It is not repeated'
                " here, as it may hold a secret."
            )
        return cls(scheme.lower().replace("abfss", "abfs"), bucket, "/".join(parts))

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}"

    def __truediv__(self, name: str) -> "Uri":
        return Uri(self.scheme, self.bucket, f"{self.key}/{name}")

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]


def is_uri(value: object) -> bool:
    """Return whether a text or a path is a URI of an object store, whatever the local disk holds."""
    return isinstance(value, str | os.PathLike) and _URI.match(os.fsdecode(value)) is not None


def shown(value: str | os.PathLike[str]) -> str:
    """Return a path or a URI for a message: "s3://bucket/key" also for the path that `Path` makes of it."""
    return str(Uri.of(value)) if is_uri(value) else str(value)


def check_known_scheme(name: str, value: object) -> None:
    """Raise OptionError if an argument that may be a URI has a scheme of no store here."""
    if isinstance(value, str | os.PathLike) and _OTHER.match(os.fsdecode(value)):
        raise OptionError(f"{name} must be a local path, {_FORMS}; other URIs are not read.")
