"""Local copies of datasets, runs and sources in stores: whole, checked by their digests."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from widenet.errors import DataError, StoreError, WidenetError
from widenet.stores import cache
from widenet.stores.bucket import Bucket, Content
from widenet.stores.store_manifest import FILE_NAME, Kind, StoreManifest, object_name, read_manifest
from widenet.stores.uri import Uri, check_known_scheme, is_uri

_DIGEST = ".sha256"
"""The file beside the copy of a source that holds its SHA-256."""
_FOR_TRAINING = ("checkpoints/", "best/", "tensorboard/")
"""Files of a run that nobody needs who reads its finished model."""
_CHANGES = 3
"""How often a run may be published anew while it is copied."""


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
            return _copy_of(bucket, existing(bucket, kind), whole)
    return _copy_of(bucket, existing(bucket, kind), whole)


def existing(bucket: Bucket, kind: Kind | None) -> StoreManifest:
    """Read the manifest of a dataset or a run; raises StoreError if there is none."""
    manifest = read_manifest(bucket)
    if manifest is None:
        what = f"a {kind}" if kind else "a dataset or a run"
        raise StoreError(f"{bucket.uri} is not {what} in a store: it has no {FILE_NAME}. Check the URI.")
    if kind not in (None, manifest.kind):
        raise StoreError(f"{bucket.uri} must be a {kind}; it is a {manifest.kind}. Name another URI.")
    return manifest


def problem_of(place: str) -> str | None:
    """Return why this process cannot use the store of a URI, in a sentence; None if it can."""
    try:
        read_manifest(Bucket(Uri.of(place)))
    except WidenetError as error:
        return str(error)
    return None


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
        downloaded = bucket.download(object_name(content.sha256), file, content.size_bytes)
        if downloaded is None:
            raise _ChangedError(
                f"{bucket.uri} is damaged: an object is missing that its {FILE_NAME} lists. Try again if a"
                " training publishes there now. Otherwise publish it again."
            )
        if downloaded != content:
            raise StoreError(
                f"{bucket.uri}: the object of {name} is damaged: its SHA-256 is not that of {FILE_NAME}."
                " Publish it again."
            )


def fetched_sources(place: str | Path) -> list[tuple[Path, Uri]]:
    """Return copies of the objects that a URI names; "*" and "[...]" match several.

    Raises:
        DataError: There is no such object.
        StoreError: The store refuses.
    """
    uri = Uri.of(place)
    uris = Bucket(uri).matches() if set(uri.key) & set("*[") else [uri]
    if not uris:
        raise DataError(f"{uri}: no object matches the pattern. Check it, or name the objects.")
    return [(_source(Bucket(each)), each) for each in uris]


def _copy_of(bucket: Bucket, manifest: StoreManifest, whole: bool) -> Path:
    files = manifest.files
    if manifest.kind == "run" and "model/manifest.json" in files and not whole:
        files = {name: content for name, content in files.items() if not name.startswith(_FOR_TRAINING)}
    entry = _entry(
        cache.entry_name(bucket.uri, manifest.digest, str(len(files))),
        lambda folder: fill(folder, bucket, files),
    )
    for name, content in files.items():
        if not (entry / name).is_file() or (entry / name).stat().st_size != content.size_bytes:
            raise _damaged(entry, bucket.uri)
    return entry


def _source(bucket: Bucket) -> Path:
    version, uri = bucket.version(), bucket.uri
    if version is None:
        raise DataError(f"{uri}: there is no such object. Check the key, or name several by a pattern.")
    name = uri.name[-100:]

    def download(folder: Path) -> None:
        content = bucket.download("", folder / name)
        if content is None or bucket.version() != version:
            raise DataError(f"{uri} has changed while it was read. Read it again.")
        (folder / _DIGEST).write_text(content.sha256, encoding="ascii")

    entry = _entry(cache.entry_name(uri, version), download)
    if Content.of(entry / name).sha256 != (entry / _DIGEST).read_text(encoding="ascii"):
        raise _damaged(entry, uri)
    return entry / name


def _entry(name: str, download: Callable[[Path], None]) -> Path:
    """Return a copy by its name; one process makes it while the others wait."""
    entry = cache.folder("copies") / name
    if cache.is_held(entry):
        return entry
    with cache.locked(entry):
        if not entry.exists():
            partial = cache.partial(entry)
            partial.mkdir(exist_ok=True)
            download(partial)
            partial.rename(entry)
        cache.is_held(entry)  # before room is made, here or in another process
    cache.make_room()
    return entry


def adopt(folder: Path, uri: Uri, manifest: StoreManifest) -> None:
    """Make a folder that has been published the copy of its manifest, so that nobody downloads it."""
    entry = cache.folder("copies") / cache.entry_name(uri, manifest.digest, str(len(manifest.files)))
    if not cache.is_held(entry):
        with cache.locked(entry):
            if not entry.exists():
                folder.rename(entry)
    shutil.rmtree(folder, ignore_errors=True)


def _damaged(entry: Path, uri: Uri) -> StoreError:
    return StoreError(
        f"{entry}: this copy of {uri} is damaged. Remove the folder, and widenet copies it again."
    )
