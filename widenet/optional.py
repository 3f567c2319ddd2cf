"""Libraries that only some commands need."""

from collections.abc import Iterator
from contextlib import contextmanager

from widenet.errors import OptionError


@contextmanager
def optional(library: str, extra: str) -> Iterator[None]:
    """Turn a failed import within into one sentence that names the extra; raises OptionError."""
    try:
        yield
    except ImportError as error:
        raise OptionError(
            f"{library} must be installed for this; {error}. Install it with `pip install"
            f" 'widenet[{extra}]'`."
        ) from error
