"""The starter project of `widenet new`.

It has the two documents, a Makefile, a README that explains them, and a little generated data. The files are
in `starter/project`.
"""

import os
from pathlib import Path

from widenet.data.catalogue import write_catalogue_csv
from widenet.errors import OptionError

_PROJECT = Path(__file__).parent / "project"
_NAMES = {"gitignore": ".gitignore"}
"""New names of files, since hidden files are not packaged."""


def start(folder: Path) -> list[Path]:
    """Write a project into a new folder and return the paths of its files.

    Raises:
        OptionError: The folder exists or cannot be made.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise OptionError(f"{folder} must not exist yet; it does. Choose another name.") from None
    except OSError as error:
        raise OptionError(f"{folder} cannot be made: {error.strerror}. Choose another name.") from None
    name = os.fsencode(folder.resolve().name).decode(errors="replace")
    written = []
    for source in sorted(_PROJECT.iterdir()):
        path = folder / _NAMES.get(source.name, source.name)
        text = source.read_text(encoding="utf-8").replace("PROJECT", name)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return [*written, *write_catalogue_csv(folder, num_users=500, num_items=200)]
