"""A project to begin with: documents, a Makefile, a README that explains them, and a little generated
data.
"""

from pathlib import Path

from widenet.data.catalogue import write_catalogue_csv
from widenet.errors import OptionError

_PROJECT = Path(__file__).parent / "project"
_NAMES = {"gitignore": ".gitignore"}
"""Files that are called otherwise in a project than in the package, which leaves hidden files out."""


def start(folder: Path) -> list[Path]:
    """Write a project into a new folder; gives the paths of its files.

    Raises OptionError where the folder exists or cannot be made.
    """
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise OptionError(f"{folder} must not exist yet; it does. Choose another name.") from None
    except OSError as error:
        raise OptionError(f"{folder} cannot be made: {error.strerror}. Choose another name.") from None
    written = []
    for source in sorted(_PROJECT.iterdir()):
        path = folder / _NAMES.get(source.name, source.name)
        path.write_text(
            source.read_text(encoding="utf-8").replace("PROJECT", folder.resolve().name), encoding="utf-8"
        )
        written.append(path)
    return [*written, *write_catalogue_csv(folder, num_users=500, num_items=200)]
