"""Imports of libraries that only some commands need."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

from widenet.errors import OptionError


def late_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: Name of the package.
        homes: "module:attribute" of each name. No name may be that of a module of the package.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes[name].partition(":")
        value = getattr(import_module(module), attribute)
        setattr(sys.modules[package], name, value)
        return value

    return get


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
        rule = f"must be installed (`pip install {package or library}`): {error}"
        raise OptionError(rule, place=library) from error


def optional(library: str, extra: str) -> AbstractContextManager[None]:
    """As `installed`, with an extra of widenet to install."""
    return installed(library, f"'widenet[{extra}]'")
