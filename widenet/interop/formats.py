"""Files of trained networks, told apart by their suffixes; formats are found through entry points."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from widenet.data.messages import ignore_message
from widenet.errors import OptionError
from widenet.extensions import NETWORKS, loaded


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
    """Suffixes, such as ".keras", that choose it."""
    TAKES: tuple[str, ...]
    """The options that the format uses, of "weights" and "features"."""

    def import_model(self, path: Path, out: Path, options: ImportOptions) -> Any:
        """Write the network as a run and return its `Model`; see `interop.import_network.write_run`.

        Raises:
            DataError, OptionError, FitError, CheckpointError: Nothing is left then.
        """


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


def format_of(path: Path) -> NetworkFormat:
    """Return the format that imports files of a suffix; raises OptionError if there is none."""
    found: NetworkFormat = _by_suffix(path, "import_model", "path")
    return found


def writer_of(out: Path) -> NetworkWriter:
    """Return the writer of a file's suffix; raises OptionError if there is none."""
    found: NetworkWriter = _by_suffix(out, "export_model", "out")
    return found


def _by_suffix(path: Path, ability: str, option: str) -> Any:
    able = [each for each in loaded(NETWORKS).values() if hasattr(each, ability)]
    found = next((each for each in able if path.suffix.lower() in each.SUFFIXES), None)
    if found is None:
        known = " or ".join(sorted({suffix for each in able for suffix in each.SUFFIXES}))
        raise OptionError(f"must end in {known}", option=option, value=str(path))
    return found
