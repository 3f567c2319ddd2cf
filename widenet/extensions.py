"""Extensions by installed distributions: forms of documents, commands, and networks of other programs.

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

from widenet.errors import OptionError, reason_of, warn_user

DOCUMENTS = "widenet.documents"
"""Group of entry points that are a `DocumentForm`."""
COMMANDS = "widenet.commands"
"""Group of entry points that are a `Command`; the name of an entry point is that of its command."""
NETWORKS = "widenet.networks"
"""Group of entry points that are an `interop.formats.NetworkFormat`, a `NetworkWriter` or both."""


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
    """A network document in widenet's words.

    Args:
        values: The document.
        notes: Sentences on what a reader should know.
    """

    values: dict[str, Any]
    notes: Sequence[str] = ()


class DocumentForm(Protocol):
    """A form in which other programs write network documents; a module will do."""

    def plain(self, text: str) -> str:
        """Return text as JSON: without comments, for example. Text of other forms stays as it is."""

    def owns(self, values: object) -> bool:
        """Return whether plain JSON values are a document of this form."""

    def translated(self, values: dict[str, Any], where: str) -> Translated:
        """Return the document in widenet's words.

        Raises:
            DocumentError: The document is wrong; `where` begins the message.
        """


@cache
def extensions(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, in order of their names.

    Of several with one name, widenet's own counts. A checkout has those of its pyproject.toml, whatever was
    installed from it before.
    """
    points, own = [*entry_points(group=group)], _of_checkout(group)
    if own is not None:
        points = [point for point in points if not _is_own(point)] + own
    by_name: dict[str, EntryPoint] = {}
    for point in sorted(points, key=lambda point: (point.name, not _is_own(point), point.value)):
        by_name.setdefault(point.name, point)
    return by_name


def _is_own(point: EntryPoint) -> bool:
    return point.value.startswith("widenet.")


def _of_checkout(group: str) -> list[EntryPoint] | None:
    """Return the entry points in widenet's pyproject.toml; None if widenet does not run from its checkout."""
    path = Path(__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(path.read_text("utf-8")).get("project", {}) if path.is_file() else {}
    if project.get("name") != "widenet":
        return None
    return [EntryPoint(name, value, group) for name, value in project["entry-points"][group].items()]


@cache
def load(point: EntryPoint) -> Any:
    """Return what an entry point names.

    Raises:
        OptionError: Its distribution is damaged, or does not fit this version of widenet.
    """
    try:
        return point.load()
    except Exception as error:  # an extension may raise anything
        owner = point.dist.name if point.dist is not None else point.value
        rule = f'the extension "{point.name}" of {point.group} cannot be loaded: {reason_of(error)}'
        raise OptionError(rule, place=owner) from error


def loaded(group: str) -> dict[str, Any]:
    """Return what the entry points of a group name; a damaged one is left out with a warning."""
    targets = {}
    for name, point in extensions(group).items():
        try:
            targets[name] = load(point)
        except OptionError as error:
            warn_user(str(error))
    return targets


def document_forms() -> list[DocumentForm]:
    """Return all forms of documents."""
    return [*loaded(DOCUMENTS).values()]
