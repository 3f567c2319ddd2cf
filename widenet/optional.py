"""Imports of libraries that only some commands need."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from widenet.errors import OptionError


@contextmanager
def installed(library: str, package: str | None = None) -> Iterator[None]:
    """Turn an ImportError within the block into an OptionError that names what to install.

    Args:
        library: The library.
        package: What pip installs to have it; None: the library.
    """
    try:
        yield
    except ImportError as error:
        rule = f"cannot be imported: {error}"
        if isinstance(error, ModuleNotFoundError):
            rule = "is not installed" + (
                "" if error.name == library else f": there is no module {error.name}"
            )
        raise OptionError(f"{library} {rule}. Install it with `pip install {package or library}`.") from error


def optional(library: str, extra: str) -> AbstractContextManager[None]:
    """As `installed`, with an extra of widenet to install."""
    return installed(library, f"'widenet[{extra}]'")
