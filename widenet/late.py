"""Public names of a package that are imported when they are first used, so that importing it is quick."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


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
