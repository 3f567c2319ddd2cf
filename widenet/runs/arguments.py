"""What a caller gives for a document, a path or a dataset."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from widenet.data.dataset import Dataset
from widenet.errors import DocumentError, OptionError


def document(kind: Any, given: Any) -> Any:
    """A document of a kind, from itself, plain values or a path; raises DocumentError."""
    if isinstance(given, kind):
        return given
    if isinstance(given, str | os.PathLike):
        return kind.read(given)
    if isinstance(given, Mapping):
        return kind.of(dict(given), kind.usual_name)
    raise DocumentError(f"{kind.usual_name} must be a document, plain values in a dictionary, or the path of a file; got {given!r}.")


def path_of(name: str, given: object) -> Path:
    """A path that an argument gives; raises OptionError."""
    if not isinstance(given, str | os.PathLike):
        raise OptionError(f"{name} must be a path; got {given!r}.")
    return Path(given)


def dataset_of(given: Dataset | str | Path) -> Dataset:
    """A dataset, from itself or its directory; raises DataError, OptionError."""
    return given if isinstance(given, Dataset) else Dataset.open(path_of("data", given))
