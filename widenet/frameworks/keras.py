"""The network format of Keras 3, for `widenet import`."""

import zipfile
from pathlib import Path
from typing import Any

from widenet.interop.formats import ImportOptions, Likeness
from widenet.optional import optional

NAME = "a Keras 3 model"
SUFFIXES = (".keras",)
TAKES: tuple[str, ...] = ()


def likeness(path: Path, head: bytes) -> Likeness:
    """See `NetworkFormat.likeness`."""
    del head
    return Likeness.CONTENT if zipfile.is_zipfile(path) and _holds(path, "config.json") else Likeness.NONE


def _holds(path: Path, name: str) -> bool:
    """Return whether a zip has a file of that name; a damaged zip has no files."""
    try:
        with zipfile.ZipFile(path) as archive:
            return name in archive.namelist()
    except zipfile.BadZipFile:
        return False


def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
    """See `NetworkFormat.import_model`."""
    with optional("h5py", "keras"):
        from widenet.frameworks.keras_import import read_keras
    from widenet.interop.imported import write_imported

    return write_imported(read_keras(path), out, options)
