"""Reading what anybody may have written: whatever is not as its format says becomes one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from widenet.errors import DataError, reason_of

_DAMAGE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that missing or wrong values of a damaged file raise; HDF5 raises RuntimeError."""


@contextmanager
def reading(path: Path, kind: str, *more: type[Exception]) -> Iterator[None]:
    """Raise DataError, which says that a file is no whole one of a kind, for what its values raise within.

    more: exceptions of the format's library. Numbers that become infinite or undefined pass; who takes them
    as weights refuses them.
    """
    damage: tuple[type[Exception], ...] = (*_DAMAGE, *more)
    try:
        with np.errstate(all="ignore"):
            yield
    except damage as error:
        raise DataError(f"{path} is no whole {kind}: {reason_of(error)}. Save it again.") from None
