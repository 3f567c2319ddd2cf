"""Options of the form NAME=VALUE."""

from collections.abc import Sequence
from pathlib import Path

from widenet.errors import OptionError


def index_files(given: Sequence[str]) -> dict[str, Path] | Path | None:
    """The index files by data set, or the one of all; raises OptionError where both forms are mixed."""
    plain = [Path(text) for text in given if "=" not in text]
    if plain and len(given) > 1:
        raise OptionError(
            f"--features must be one file for all data sets, or SET=FILE for each; got {', '.join(given)}. Name the data sets."
        )
    if plain:
        return plain[0]
    return {name: Path(path) for name, path in pairs("--features", given).items()} or None


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """What is given by name; raises OptionError for a text without "=", and for a name that stands twice."""
    found: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or name in found:
            raise OptionError(f"{option} must be NAME=VALUE, each name once; got {', '.join(given)}. Correct it.")
        found[name] = value
    return found
