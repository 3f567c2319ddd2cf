"""Imports of libraries that only some commands need."""

from collections.abc import Iterator
from contextlib import contextmanager

from widenet.errors import OptionError


@contextmanager
def installed(library: str) -> Iterator[None]:
    """Turn an ImportError within the block into an OptionError that names the library to install."""
    try:
        yield
    except ImportError as error:
        raise OptionError(
            f"{library} must be installed for this; {error}. Install it with `pip install {library}`."
        ) from error


@contextmanager
def optional(library: str, extra: str) -> Iterator[None]:
    """Turn an ImportError within the block into an OptionError that names the extra to install."""
    try:
        yield
    except ImportError as error:
        raise OptionError(
            f"{library} must be installed for this; {error}."
            f" Install it with `pip install 'widenet[{extra}]'`."
        ) from error
