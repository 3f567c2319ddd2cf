"""Folders in stores: an object for each content, and a manifest that lists the files and is written last."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from widenet.errors import DataError, OptionError, StoreError, WidenetError, damage_of
from widenet.stores import cache
from widenet.stores.bucket import Bucket, Content
from widenet.stores.uri import Uri, check_known_scheme, is_uri

FILE_NAME = "widenet.json"
Kind = Literal["dataset", "run"]
Sources = Mapping[str, Path | bytes]
"""The content of each file, by its SHA-256."""

_DIGEST = ".sha256"
"""The file beside the copy of a source that holds its SHA-256."""
_FOR_TRAINING = ("checkpoints/", "best/", "tensorboard/")
"""Files of a run that nobody needs who reads its finished model."""
_CHANGES = 3
"""How often a run may be published anew while it is copied."""
_LONGEST_NAME_BYTES = 255


def _plain_name(name: str) -> str:
    """Return the path of a file in a folder; raises ValueError for one that a folder cannot hold."""
    parts = name.split("/")
    is_short = max(len(part.encode()) for part in parts) <= _LONGEST_NAME_BYTES
    if set(parts) & {"", ".", ".."} or "\\" in name or not name.isprintable() or not is_short:
        raise ValueError("must be the path of a file in the folder")
    return name


class StoreManifest(BaseModel):
    """The files of a dataset or a run in a store."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    format_version: Literal[1] = 1
    kind: Kind
    files: dict[Annotated[str, AfterValidator(_plain_name)], Content]
    """Size and SHA-256 of each file, by its path."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(str(above) in self.files for name in self.files for above in PurePosixPath(name).parents):
            raise ValueError("no file can be the folder of another")
        return self

    @classmethod
    def from_json(cls, text: bytes, place: object) -> Self:
        """Read a manifest, which anybody may have written; raises StoreError."""
        try:
            document = json.loads(text)
            digest = document.pop("sha256")
            manifest = cls.model_validate_json(json.dumps(document))
            if digest != manifest.digest:
                raise ValueError("sha256")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            rule = f"is damaged, or of another version of widenet: {damage_of(error)}"
            raise StoreError(rule, place=place) from None
        return manifest

    @property
    def digest(self) -> str:
        """SHA-256 of the contents: equal for equal manifests."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()

    @property
    def objects(self) -> dict[str, int]:
        """The sizes of the objects, by name below the URI."""
        return {object_name(content.sha256): content.bytes for content in self.files.values()}

    def to_json(self) -> bytes:
        """The text of the manifest."""
        return json.dumps({**self.model_dump(), "sha256": self.digest}, indent=1).encode()


def object_name(sha256: str) -> str:
    """The name of the object with a content, below the URI."""
    return f"files/{sha256}"


def digests_in(bucket: Bucket) -> set[str]:
    """The SHA-256 of the objects below a URI that widenet has written, but for the manifest."""
    found = (re.fullmatch(r"files/([0-9a-f]{64})", name) for name in bucket.sizes())
    return {match[1] for match in found if match is not None}


def read_manifest(bucket: Bucket) -> StoreManifest | None:
    """Read the manifest below a URI; None if there is none."""
    text = bucket.read(FILE_NAME)
    return None if text is None else StoreManifest.from_json(text, bucket.uri / FILE_NAME)


class _ChangedError(StoreError):
    """An object that a manifest lists is gone: its run was published anew, or is damaged."""


def readable(place: str | Path, kind: Kind | None = None, whole: bool = False) -> Path:
    """Return the local path of a dataset or a run: the path itself, or for a URI a copy.

    Args:
        place: The path or URI.
        kind: What it must be; None: either.
        whole: Also copy the checkpoints of a run that has a finished model.

    Raises:
        OptionError: The URI is not of an accepted form.
        StoreError: The store refuses, or holds something else.
    """
    if not is_uri(place):
        check_known_scheme("`data`" if kind == "dataset" else "`run`", place)
        return Path(place)
    bucket = Bucket(Uri.of(place))
    for _ in range(_CHANGES - 1):
        with suppress(_ChangedError):
            return _copy_of(bucket, kind, whole)
    return _copy_of(bucket, kind, whole)


def problem_of(place: str) -> str | None:
    """Return why this process cannot use the store of a URI, in a sentence; None if it can."""
    try:
        read_manifest(Bucket(Uri.of(place)))
    except WidenetError as error:
        return str(error)
    return None


def _copy_of(bucket: Bucket, kind: Kind | None, whole: bool) -> Path:
    manifest = read_manifest(bucket)
    if manifest is None or kind not in (None, manifest.kind):
        raise StoreError(
            f"must be the manifest of a {kind or 'dataset or a run'}", place=bucket.uri / FILE_NAME
        )
    files = manifest.files
    if manifest.kind == "run" and "model/manifest.json" in files and not whole:
        files = {name: content for name, content in files.items() if not name.startswith(_FOR_TRAINING)}
    entry = cache.copy(_name_of(bucket.uri, manifest, files), partial(fill, bucket=bucket, files=files))
    for name, content in files.items():
        if not (entry / name).is_file() or (entry / name).stat().st_size != content.bytes:
            raise _damaged(entry, bucket.uri)
    return entry


def _name_of(uri: Uri, manifest: StoreManifest, files: Mapping[str, Content]) -> str:
    """The name of a copy of some files."""
    return cache.entry_name(uri, manifest.digest, str(len(files)))


def _damaged(entry: Path, uri: Uri) -> StoreError:
    return StoreError(f"is a damaged copy of {uri}; remove it", place=entry)


def fill(folder: Path, bucket: Bucket, files: Mapping[str, Content]) -> None:
    """Download files into a folder; those that are there whole are kept.

    Raises:
        StoreError: An object does not have the digest of the manifest, or is gone.
    """
    for name, content in files.items():
        file = folder / name
        if file.is_file() and Content.of(file) == content:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        downloaded = bucket.download(object_name(content.sha256), file, content.bytes)
        if downloaded is None:
            raise _ChangedError(f"is gone, although {FILE_NAME} lists it", place=bucket.uri / name)
        if downloaded != content:
            raise StoreError(f"must have the SHA-256 of {FILE_NAME}; it is damaged", place=bucket.uri / name)


def fetched_sources(place: str | Path) -> list[tuple[Path, Uri]]:
    """Return copies of the objects that a URI names; "*" and "[...]" match several.

    Raises:
        DataError: There is no such object.
        StoreError: The store refuses.
    """
    uri = Uri.of(place)
    uris = Bucket(uri).matches() if set(uri.key) & set("*[") else [uri]
    if not uris:
        raise DataError("must match an object", place=uri)
    return [(_source(Bucket(each)), each) for each in uris]


def _source(bucket: Bucket) -> Path:
    version, uri = bucket.version(), bucket.uri
    if version is None:
        raise DataError("must be an object; there is none", place=uri)
    name = uri.name[-100:]

    def download(folder: Path) -> None:
        content = bucket.download("", folder / name)
        if content is None or bucket.version() != version:
            raise DataError("has changed while it was read", place=uri)
        (folder / _DIGEST).write_text(content.sha256, encoding="ascii")

    entry = cache.copy(cache.entry_name(uri, version), download)
    if Content.of(entry / name).sha256 != (entry / _DIGEST).read_text(encoding="ascii"):
        raise _damaged(entry, uri)
    return entry / name


@contextmanager
def dataset_out(out: str | Path, is_repeated: bool = False) -> Iterator[Path]:
    """Give a local path for a new dataset directory, which is published at a URI when the block ends.

    Args:
        out: The URI.
        is_repeated: Whether an earlier attempt may have published the same dataset, which then stays.

    Raises:
        StoreError: The URI is taken, or the store refuses.
    """
    bucket = Bucket(Uri.of(out))
    if not is_repeated or read_manifest(bucket) is None:
        check_vacant(bucket)
    with _sent(bucket, partial(_publish_dataset, bucket)) as making:
        yield making


def _publish_dataset(bucket: Bucket, place: Path) -> None:
    """Publish a directory, which then becomes the copy of its manifest, so that nobody downloads it."""
    files = {path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file()}
    contents = {name: Content.of(path) for name, path in files.items()}
    manifest, before = StoreManifest(kind="dataset", files=contents), read_manifest(bucket)
    if before is None or before.digest != manifest.digest:
        send(bucket, manifest, {contents[name].sha256: path for name, path in files.items()})

    def adopt(folder: Path) -> None:
        shutil.rmtree(folder)
        place.rename(folder)

    cache.copy(_name_of(bucket.uri, manifest, contents), adopt)


@contextmanager
def file_out(out: str | Path) -> Iterator[Path]:
    """Give a local path for a new file, which becomes the object at a URI when the block ends.

    Raises:
        OptionError: There is such an object.
        StoreError: The store refuses.
    """
    bucket = Bucket(Uri.of(out))
    name = bucket.uri.name[-100:]

    def check_absent() -> None:
        OptionError.require(bucket.version() is None, "exists already", place=bucket.uri)

    def upload(folder: Path) -> None:
        check_absent()
        bucket.upload("", folder / name)

    check_absent()
    with _sent(bucket, upload) as making:
        making.mkdir()
        yield making / name


@contextmanager
def _sent(bucket: Bucket, send: Callable[[Path], None]) -> Iterator[Path]:
    """Give a folder, not made yet, which is sent to a bucket when the block ends; other processes wait.

    If it cannot be sent, it stays until the same is made again.
    """
    place = cache.folder("unsent") / cache.entry_name(bucket.uri)
    with cache.locked(place):
        shutil.rmtree(place, ignore_errors=True)
        yield place
        send(place)
        shutil.rmtree(place, ignore_errors=True)


def check_vacant(bucket: Bucket) -> None:
    """Raise StoreError if a URI holds anything but objects of an upload that was broken off."""
    is_vacant = bucket.version() is None and len(bucket.sizes()) == len(digests_in(bucket))
    rule = f"must hold nothing yet but what an interrupted upload left; it has {FILE_NAME} or other objects"
    StoreError.require(is_vacant, rule, place=bucket.uri)


def send(
    bucket: Bucket,
    manifest: StoreManifest,
    sources: Sources,
    before: StoreManifest | None = None,
    unneeded: Collection[str] = (),
) -> None:
    """Publish a manifest after its objects; those that are there are not sent again.

    Args:
        bucket: Where to publish.
        manifest: The manifest.
        sources: The contents of its files; of those without one, the objects must be there.
        before: The manifest that it replaces; None: it is the first.
        unneeded: SHA-256 of objects to remove then.

    Raises:
        StoreError: The store refuses, or somebody else has published meanwhile.
    """
    there = bucket.sizes()
    for digest, source in sources.items():
        name = object_name(digest)
        if there.get(name) != manifest.objects[name]:
            bucket.upload(name, source)
    there = bucket.sizes()
    if any(there.get(name) != size for name, size in manifest.objects.items()):
        raise StoreError("an object was not stored whole", place=bucket.uri)
    now = read_manifest(bucket)
    if (now and now.digest) != (before and before.digest):
        raise StoreError("was published by somebody else meanwhile", place=bucket.uri)
    bucket.upload(FILE_NAME, manifest.to_json())
    for digest in unneeded:
        bucket.delete(object_name(digest))
