"""Files of trained networks, told apart by what they hold; formats are found through entry points."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

from widenet.data.messages import ignore_message
from widenet.errors import OptionError
from widenet.extensions import NETWORKS, loaded

HDF5 = b"\x89HDF\r\n\x1a\n"
"""How HDF5 begins."""
HEAD_BYTES = 2**16
"""Number of a file's first bytes by which a format recognizes it."""


class Likeness(IntEnum):
    """Likeness of a file to the files of a format."""

    NONE = 0
    CONTAINER = 1
    """The file is a container, such as ZIP, that this format and others use."""
    CONTENT = 2
    """The content is of the format."""


@dataclass(frozen=True)
class ImportOptions:
    """Options of an import.

    Args:
        weights: A second file, which holds the weights.
        data: A dataset whose fields the network's inputs and outputs are.
        features: Index files that name features.
        fields: Other names for the network's inputs and outputs, by its own.
        say: Called with a sentence about anything that the user should know.
        overwrite: Whether to replace an earlier run.
    """

    weights: Path | None = None
    data: Path | None = None
    features: Mapping[str, Path] | Path | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = ignore_message
    overwrite: bool = False


class NetworkFormat(Protocol):
    """A format of files that hold a trained network; a module will do."""

    NAME: str
    """Name of such a file for messages, such as "a Keras 3 model"."""
    SUFFIXES: tuple[str, ...]
    """Suffixes, such as ".keras", that decide if the content does not."""
    TAKES: tuple[str, ...]
    """The options that the format uses, of "weights" and "features"."""

    def likeness(self, path: Path, head: bytes) -> Likeness:
        """Return how much a file looks like one of this format; head: its first bytes."""

    def import_model(self, path: Path, out: Path, options: ImportOptions) -> Any:
        """Write the network as a run and return its `Model`; see `interop.import_network.write_run`.

        Raises:
            DataError, OptionError, FitError, CheckpointError: Nothing is left then.
        """


def format_of(path: Path) -> NetworkFormat:
    """Return the format of a file that exists.

    Raises:
        OptionError: The file is of no known format.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    formats: list[NetworkFormat] = [
        each for each in loaded(NETWORKS).values() if hasattr(each, "import_model")
    ]
    likeness = [(each.likeness(path, head), each) for each in formats]
    best, closest = max(likeness, key=lambda pair: pair[0])
    if best:
        return closest
    suffix = path.suffix.lower()
    named = next((each for each in formats if suffix in each.SUFFIXES), None)
    if named is not None:
        return named
    known = ", ".join(sorted({suffix for each in formats for suffix in each.SUFFIXES}))
    raise OptionError(f"must be a trained network: one of {known}", place=path)


class NetworkWriter(Protocol):
    """A network format that is written, also or only."""

    SUFFIXES: tuple[str, ...]
    """Suffixes, such as ".onnx", that choose it."""

    def export_model(
        self, run: Path, out: Path, top_k: int | None, exclude_seen: bool, overwrite: bool
    ) -> list[Path]:
        """Write the model of a run and return the files.

        Args:
            run: The run.
            out: The file to write.
            top_k: Give the k best units instead of all scores.
            exclude_seen: With `top_k`, leave out an example's own units.
            overwrite: Replace an earlier model of widenet.
        """


def writer_of(out: Path) -> NetworkWriter:
    """Return the writer of a file's suffix; raises OptionError if there is none."""
    writers: list[NetworkWriter] = [
        each for each in loaded(NETWORKS).values() if hasattr(each, "export_model")
    ]
    found = next((each for each in writers if out.suffix.lower() in each.SUFFIXES), None)
    if found is None:
        suffixes = " or ".join(suffix for each in writers for suffix in each.SUFFIXES)
        raise OptionError(f"must end in {suffixes}", option="out", value=str(out))
    return found


def begins_as_hdf5(path: Path) -> bool:
    """Return whether a file has the first bytes of HDF5, as those of NetCDF-4 have."""
    try:
        if not path.is_file():  # a pipe without a writer would wait forever
            return False
        with path.open("rb") as file:
            return file.read(len(HDF5)) == HDF5
    except OSError:
        return False


def text_of(head: bytes) -> str | None:
    """Return the beginning of a file as text, or None if it is none."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(head) - error.start > 4 or len(head) < HEAD_BYTES:
            return None
        text = head[: error.start].decode("utf-8")
    return text if all(letter.isprintable() or letter in "\n\r\t" for letter in text) else None
