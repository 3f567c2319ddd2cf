"""Compiling by Numba, where it can be imported: code that makes one pass over numbers where torch's
operations make many.
"""

from collections.abc import Callable
from functools import cache, partial, wraps
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

T = TypeVar("T")
_COMPILING = RLock()


def made_once(make: Callable[..., T]) -> Callable[..., T]:
    """`make` that keeps what it made; of several threads that ask at once, one makes it and the others
    wait.
    """
    kept: dict[tuple[Any, ...], T] = {}

    @wraps(make)
    def made(*arguments: Any) -> T:
        if arguments not in kept:
            with _COMPILING:
                if arguments not in kept:
                    kept[arguments] = make(*arguments)
        return kept[arguments]

    return made


@cache
def can_compile() -> bool:
    """Whether Numba can be imported."""
    try:
        import numba  # noqa: F401
    except ImportError:
        return False
    return True


def compile_for(function: Callable[..., Any], signature: str, *within: str) -> Callable[..., Any]:
    """The function compiled for one signature, and kept on disk where there is a folder to write. within:
    what it calls in other files.
    """
    from numba import njit

    compile_: Any = partial(njit, signature, nogil=True, error_model="numpy")
    named = named_for(function, signature, *within)
    try:
        kept: Callable[..., Any] = compile_(cache=True)(named)
    except (OSError, RuntimeError):
        kept = compile_()(named)
    return kept


def named_for(function: Any, *within: str) -> Any:
    """The function under a name that tells all that its code depends on: its file and this one, what it
    calls, the processor, Numba.

    By a function's name Numba keeps what it compiled on disk, and finds code in memory. It does not look at
    what is called within, and two codes of one name, compiled by two processes, are mistaken for each other.
    """
    import numba
    from llvmlite import binding

    machine = [binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), numba.__version__]
    texts = [Path(path).read_text(encoding="utf-8") for path in (__file__, function.__code__.co_filename)]
    digest = sha256("\0".join([*texts, *within, *machine]).encode()).hexdigest()
    function.__qualname__ = f"{function.__name__}_{digest[:32]}"
    return function
