"""What installed distributions add to widenet: forms of documents, commands, and files of other programs.

A distribution names its extensions as entry points, in the groups below. widenet's own are found in the same
way, in its pyproject.toml. They are loaded only when they are needed.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol

from widenet.errors import OptionError, reason_of

DOCUMENTS = "widenet.documents"
"""Group of entry points that are a `DocumentForm`."""
COMMANDS = "widenet.commands"
"""Group of entry points that are a `Command`; the name of an entry point is that of its command."""
NETWORKS = "widenet.networks"
"""Group of entry points that are an `interop.formats.NetworkFormat`."""
DATASETS = "widenet.datasets"
"""Group of entry points that are a `DatasetFormat`."""


@dataclass(frozen=True)
class Command:
    """A command of the command line, or a group of commands.

    Args:
        summary: What the list of commands says of it, a line.
        app: Where its `typer.Typer` or its function is, as "package.module:name". The module is imported
            when the command is called.
    """

    summary: str
    app: str


@dataclass(frozen=True)
class Translated:
    """A network document in widenet's words, and sentences on what a reader should know."""

    values: dict[str, Any]
    notes: Sequence[str] = ()


class DocumentForm(Protocol):
    """A form in which other programs, or earlier versions, write network documents; a module will do."""

    def plain(self, text: str) -> str:
        """Return text as JSON: without comments, for example. Text of other forms stays as it is."""

    def owns(self, values: object) -> bool:
        """Return whether plain JSON values are a document of this form."""

    def translated(self, values: dict[str, Any], where: str) -> Translated:
        """Return the document in widenet's words.

        Raises:
            DocumentError: The document is wrong; `where` begins the message.
        """


class DatasetFormat(Protocol):
    """Files that say what they hold, so that ingest needs none of its options; a module will do."""

    def owns(self, path: Path) -> bool:
        """Return whether a file is of this format; it may be missing."""

    def ingest(self, paths: Sequence[Path], out: Path, name: str | None, context: Any) -> Any:
        """Write the dataset and return its `Manifest`; context: the `typer.Context` of the command."""


@cache
def extensions(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, in order of their names."""
    points = [*entry_points(group=group)]
    if not any(point.value.startswith("widenet.") for point in points):
        points += _of_checkout(group)
    return {point.name: point for point in sorted(points, key=lambda point: point.name)}


def _of_checkout(group: str) -> list[EntryPoint]:
    """Return widenet's own entry points where it runs from a source tree that is not installed."""
    path = Path(__file__).parents[1] / "pyproject.toml"
    if not path.is_file():
        return []
    project = tomllib.loads(path.read_text("utf-8"))["project"]
    return [EntryPoint(name, value, group) for name, value in project["entry-points"][group].items()]


@cache
def load(point: EntryPoint) -> Any:
    """Return what an entry point names.

    Raises:
        OptionError: Its distribution is damaged, or does not fit this version of widenet.
    """
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        owner = point.dist.name if point.dist is not None else point.value
        raise OptionError(
            f'{owner}: the extension "{point.name}" of {point.group} cannot be loaded: {reason_of(error)}.'
            " Install another version of it, or remove it."
        ) from error


def document_forms() -> list[DocumentForm]:
    """Return all forms of documents."""
    return [load(point) for point in extensions(DOCUMENTS).values()]


def dataset_formats() -> list[DatasetFormat]:
    """Return all formats of datasets."""
    return [load(point) for point in extensions(DATASETS).values()]
