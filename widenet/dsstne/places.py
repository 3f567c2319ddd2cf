"""Checks of the paths of several files that are written together."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from widenet.errors import OptionError


def check_places(places: Mapping[str, Path]) -> None:
    """Raise OptionError unless the files to write are distinct and in existing folders.

    Args:
        places: Paths of the files by the option that names them.
    """
    for option, path in places.items():
        if not path.parent.is_dir():
            raise OptionError(
                f"{option} must be in a folder that exists; got {path}. Make {path.parent} first."
            )
        if path.is_dir():
            raise OptionError(
                f"{option} must be a file to write; {path} is a directory. Choose another name."
            )
    for (option, path), (other, place) in combinations(places.items(), 2):
        if path.resolve() == place.resolve():
            raise OptionError(f"{option} and {other} must be two files; got {path} twice. Name another.")
