"""Compiles functions with Numba: one pass over numbers, where torch's operations make several."""

import errno
import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, wraps
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

T = TypeVar("T")
_COMPILING = RLock()

_PATIENCE = 60.0
"""Seconds to wait for another process that compiles: many times what it takes."""


def made_once(make: Callable[..., T]) -> Callable[..., T]:
    """Cache a function's results by its arguments; concurrent threads compute each result only once."""
    results: dict[tuple[Any, ...], T] = {}

    @wraps(make)
    def made(*arguments: Any) -> T:
        if arguments not in results:
            with _COMPILING:
                if arguments not in results:
                    results[arguments] = make(*arguments)
        return results[arguments]

    return made


@cache
def can_compile() -> bool:
    """Return whether Numba can be imported and compiles; with NUMBA_DISABLE_JIT=1 it does not."""
    try:
        import numba
    except ImportError:
        return False
    return not numba.config.DISABLE_JIT  # type: ignore[attr-defined]


def compile_for(function: Callable[..., Any], signature: str, *within: str) -> Callable[..., Any]:
    """Compile a function for one signature; cache the code on disk if the folder can be written.

    Args:
        function: The function.
        signature: Types of its arguments and its result, as Numba writes them.
        within: Names or sources of the functions in other files that it calls.
    """
    from numba import njit

    named = named_for(function, signature, *within)
    folder = _lacking(named)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        with nullcontext() if folder is None else _alone(folder, named.__qualname__):
            compiled: Callable[..., Any] = njit(signature, cache=True, **options)(named)
    except (OSError, RuntimeError):
        compiled = njit(signature, **options)(named)
    return compiled


def _lacking(function: Any) -> Path | None:
    """Return the folder of Numba's cache if it can hold a function's code, and seems not to."""
    from numba import njit

    try:
        folder: Any = njit(cache=True)(function).stats.cache_path
    except (OSError, RuntimeError):
        return None
    return None if any(Path(folder).glob(f"*{function.__qualname__}-*.nbi")) else Path(folder)


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Let the processes of a machine compile a function one after the other: the next load what one has kept.

    A process waits `_PATIENCE` seconds at most, because the other may have been stopped.
    """
    place = int(name[-15:], 16)  # each function has a byte of the file, which stays empty
    deadline = time.monotonic() + _PATIENCE
    with (folder / "compiling.lock").open("ab") as file:
        while time.monotonic() < deadline:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
                break
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    break  # this file system has no locks
                time.sleep(0.02)
        yield


def named_for(function: Any, *within: str) -> Any:
    """Rename a function after everything that its code depends on: file, callees, processor and Numba.

    Numba finds cached code on disk and in memory by the function's name. It ignores changes in called
    functions, and it confuses code of the same name that two processes have compiled.
    """
    import numba
    from llvmlite import binding

    machine = [binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), numba.__version__]
    texts = [Path(path).read_text(encoding="utf-8") for path in (__file__, function.__code__.co_filename)]
    digest = sha256("\0".join([*texts, *within, *machine]).encode()).hexdigest()
    function.__qualname__ = f"{function.__name__}_{digest[:32]}"
    return function
