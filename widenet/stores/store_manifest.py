"""The manifest of a dataset or a run in a store: it is written last, and says which objects belong to it."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from widenet.errors import StoreError, damage_of
from widenet.stores.bucket import Bucket, Content, is_plain

FILE_NAME = "widenet.json"
_FORMAT_VERSION = 1
_LONGEST_NAME_BYTES = 255
_SHA256 = re.compile(r"[0-9a-f]{64}")

Kind = Literal["dataset", "run"]


@dataclass(frozen=True)
class StoreManifest:
    """The files of a dataset or a run in a store.

    Attributes:
        kind: What the files are.
        files: Size and SHA-256 of each file, by its path.
        replaced: SHA-256 of objects of earlier manifests that may still be there.
    """

    kind: Kind
    files: Mapping[str, Content]
    replaced: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: bytes, place: str) -> "StoreManifest":
        """Read a manifest, which anybody may have written; raises StoreError."""
        try:
            document = json.loads(text)
            version, kind = document["format_version"], document["kind"]
            if type(version) is not int:
                raise ValueError("its format_version is no whole number")
            if version > _FORMAT_VERSION:
                raise StoreError(
                    f"{place}: format_version must be at most {_FORMAT_VERSION}; got {version}. Update"
                    " widenet."
                )
            files = {
                name: Content(entry["bytes"], entry["sha256"]) for name, entry in document["files"].items()
            }
            manifest = cls(kind, files, frozenset(document["replaced"]))
            if kind not in get_args(Kind) or document["sha256"] != manifest.digest:
                raise ValueError("its sha256 is not that of its contents")
            for name, content in files.items():
                _check_entry(name, content)
            if any(str(above) in files for name in files for above in PurePosixPath(name).parents):
                raise ValueError("one of its files is the folder of another")
            if not all(_SHA256.fullmatch(digest) for digest in manifest.replaced):
                raise ValueError("it names an object that widenet does not write")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            reason = str(error) if type(error) is ValueError else damage_of(error)
            raise StoreError(f"{place} is damaged: {reason}. Publish it again.") from None
        return manifest

    @property
    def digest(self) -> str:
        """SHA-256 of the contents: equal for equal manifests."""
        return hashlib.sha256(json.dumps(self._contents(), sort_keys=True).encode()).hexdigest()

    @property
    def objects(self) -> dict[str, int]:
        """The sizes of the objects, by name below the URI."""
        return {object_name(content.sha256): content.size_bytes for content in self.files.values()}

    def to_json(self) -> bytes:
        """The text of the manifest."""
        return json.dumps({**self._contents(), "sha256": self.digest}, indent=1).encode()

    def _contents(self) -> dict[str, Any]:
        return {
            "format_version": _FORMAT_VERSION,
            "kind": self.kind,
            "files": {
                name: {"bytes": content.size_bytes, "sha256": content.sha256}
                for name, content in sorted(self.files.items())
            },
            "replaced": sorted(self.replaced),
        }


def _check_entry(name: str, content: Content) -> None:
    """Raise ValueError unless an entry of a manifest is one that widenet writes."""
    if not is_plain(name):
        raise ValueError("it names a file outside its folder")
    if max(len(part.encode()) for part in name.split("/")) > _LONGEST_NAME_BYTES:
        raise ValueError("it names a file with too long a name")
    if type(content.size_bytes) is not int or content.size_bytes < 0 or not _SHA256.fullmatch(content.sha256):
        raise ValueError("it names an object that widenet does not write")


def object_name(sha256: str) -> str:
    """The name of the object with a content, below the URI."""
    return f"files/{sha256}"


def digest_of(name: str) -> str | None:
    """The SHA-256 in the name of an object below a URI; None if widenet writes no such object."""
    folder, _, digest = name.rpartition("/")
    return digest if folder == "files" and _SHA256.fullmatch(digest) else None


def read_manifest(bucket: Bucket) -> StoreManifest | None:
    """Read the manifest below a URI; None if there is none."""
    text = bucket.read(FILE_NAME)
    return None if text is None else StoreManifest.of(text, f"{bucket.uri}/{FILE_NAME}")
