"""Publishing datasets and files in stores: objects first, the manifest last."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from widenet.errors import DataError, OptionError, StoreError
from widenet.stores import cache
from widenet.stores.bucket import Bucket, Content, server_of
from widenet.stores.fetch import adopt
from widenet.stores.store_manifest import FILE_NAME, StoreManifest, digest_of, object_name, read_manifest
from widenet.stores.uri import Uri

Sources = Mapping[str, Path | bytes]
"""The content of each file, by its SHA-256."""


@contextmanager
def dataset_out(out: str | Path, is_repeated: bool = False) -> Iterator[Path]:
    """Give a local path for a new dataset directory, which is published at a URI when the block ends.

    Args:
        out: The URI.
        is_repeated: Whether an earlier attempt may have published the same dataset, which then stays.

    Raises:
        DataError: The URI is taken.
        StoreError: The store refuses; the local directory stays if it is finished.
    """
    bucket = Bucket(Uri.of(out))
    if not is_repeated or read_manifest(bucket) is None:
        check_vacant(bucket)
    with _unsent(bucket) as (making, place):
        yield making
        _finish(making, place)
        try:
            manifest = _publish_dataset(bucket, place)
        except StoreError as error:
            raise StoreError(
                f"{error} The finished dataset is in {place}. The same command again sends what is missing."
            ) from None
        adopt(place, bucket.uri, manifest)


def _publish_dataset(bucket: Bucket, place: Path) -> StoreManifest:
    files = {path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file()}
    contents = {name: Content.of(path) for name, path in files.items()}
    manifest = StoreManifest("dataset", contents)
    before = read_manifest(bucket)
    if before is not None and before.digest == manifest.digest:
        return manifest
    send(bucket, manifest, {contents[name].sha256: path for name, path in files.items()}, None)
    return manifest


@contextmanager
def file_out(out: str | Path) -> Iterator[Path]:
    """Give a local path for a new file, which becomes the object at a URI when the block ends.

    Raises:
        OptionError: There is such an object.
        StoreError: The store refuses; the local file stays if it is finished.
    """
    bucket = Bucket(Uri.of(out))
    _check_absent(bucket)
    with _unsent(bucket) as (making, folder):
        making.mkdir()
        place = folder / bucket.uri.name[-100:]
        yield making / place.name
        _finish(making, folder)
        try:
            _check_absent(bucket)
            bucket.upload("", place)
        except (StoreError, OptionError) as error:
            raise type(error)(f"{error} The finished file is {place}.") from None
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _unsent(bucket: Bucket) -> Iterator[tuple[Path, Path]]:
    """Give the folder, not made yet, in which what goes to a bucket is made, and its place when finished.

    Other processes wait until the block ends.
    """
    place = cache.folder("unsent") / cache.entry_name(bucket.uri, *server_of(bucket.uri.scheme))
    with cache.locked(place):
        making = cache.partial(place)
        shutil.rmtree(making, ignore_errors=True)
        yield making, place


def _finish(making: Path, place: Path) -> None:
    """Put what is made in its place; what an earlier command could not send stays until here."""
    shutil.rmtree(place, ignore_errors=True)
    making.rename(place)


def _check_absent(bucket: Bucket) -> None:
    if bucket.version() is not None:
        raise OptionError(f"{bucket.uri} exists already. Choose another `out`, or remove it first.")


def check_vacant(bucket: Bucket) -> None:
    """Raise DataError if a URI holds anything but objects of an upload that was broken off."""
    if read_manifest(bucket) is not None:
        raise DataError(
            f"{bucket.uri}: already exists, and a dataset is never overwritten. Choose another `out`, or"
            " remove it first."
        )
    check_ours(bucket)


def check_ours(bucket: Bucket) -> None:
    """Raise DataError if a URI without a manifest holds objects that widenet has not written."""
    if bucket.version() is not None or any(digest_of(name) is None for name in bucket.sizes()):
        raise DataError(
            f"{bucket.uri} holds other objects, and no {FILE_NAME}. Choose another `out`, or remove them."
        )


def send(bucket: Bucket, manifest: StoreManifest, sources: Sources, before: StoreManifest | None) -> None:
    """Publish a manifest after its objects; those that are there are not sent again.

    Args:
        bucket: Where to publish.
        manifest: The manifest.
        sources: The contents of its files.
        before: The manifest that it replaces; None: it is the first.

    Raises:
        StoreError: The store refuses, or somebody else has published meanwhile.
    """
    there = bucket.sizes()
    for digest, source in sources.items():
        name = object_name(digest)
        if there.get(name) != manifest.objects[name]:
            bucket.upload(name, source)
    there = bucket.sizes()
    for name, size in manifest.objects.items():
        if there.get(name) != size:
            raise StoreError(f"{bucket.uri}: an object was not stored whole. Try again.")
    check_unchanged(bucket, before)
    bucket.upload(FILE_NAME, manifest.to_json())
    for digest in manifest.replaced:
        if object_name(digest) in there:
            bucket.delete(object_name(digest))


def check_unchanged(bucket: Bucket, *known: StoreManifest | None) -> None:
    """Raise StoreError unless the manifest in the store is one of these; None stands for no manifest."""
    now = read_manifest(bucket)
    if (now and now.digest) not in {manifest and manifest.digest for manifest in known}:
        raise StoreError(f"{bucket.uri} was published by somebody else meanwhile. Choose another `out`.")
