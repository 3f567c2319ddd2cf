"""The local folder for copies of what is in stores: bounded, with a lock for each entry."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from widenet.errors import OptionError
from widenet.stores.uri import Uri

FOLDER, LIMIT = "WIDENET_CACHE", "WIDENET_CACHE_GIB"
"""Environment variables: the folder, and the size of the copies at which the oldest are removed."""

_USUAL_GIB = 50.0
_held: dict[Path, int] = {}
"""The locks of the copies that this process reads; they end with the process."""


def folder(kind: str) -> Path:
    """Return a folder of the cache, and make it: "copies", "unsent" or "runs"."""
    path = root() / kind
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.parent.stat().st_uid != os.getuid() and FOLDER not in os.environ:
            raise PermissionError(1, "it belongs to another user")
    except OSError as error:
        raise OptionError(
            f"{path}: the folder for copies from stores cannot be made: {error.strerror}. Name another with"
            f" {FOLDER}."
        ) from None
    return path


def holds(path: Path) -> bool:
    """Whether a path is of a copy in the cache."""
    return path.absolute().is_relative_to(root())


def entry_name(uri: Uri, *more: str) -> str:
    """Return the name of an entry for a URI, and for the further texts that it depends on."""
    digest = hashlib.sha256("\n".join([str(uri), *more]).encode()).hexdigest()[:24]
    start = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in uri.name[:60])
    return f"{start}-{digest}"


@contextmanager
def locked(entry: Path) -> Iterator[None]:
    """Let only one process make an entry at a time; the others wait."""
    lock = _opened_lock(_making(entry), fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(lock)


def is_held(entry: Path) -> bool:
    """Return whether an entry exists; if it does, keep it from being removed until this process ends."""
    if entry in _held and entry.exists():
        return True
    if entry in _held:
        os.close(_held.pop(entry))
    lock = _opened_lock(_using(entry), fcntl.LOCK_SH)
    if not entry.exists():
        os.close(lock)
        return False
    os.utime(lock)
    _held[entry] = lock
    return True


def make_room() -> None:
    """Remove the copies that were unused for the longest time, until the rest is within the limit."""
    copies = sorted(map(_entry_of, folder("copies").glob(".*.lock")), key=_last_use)
    sizes = {copy: _size_bytes(copy) for copy in copies}
    excess = sum(sizes.values()) - _limit_bytes()
    for copy in copies:
        if excess <= 0:
            return
        if copy not in _held and _removed(copy):
            excess -= sizes[copy]


def partial(entry: Path) -> Path:
    """Return the folder beside an entry in which it is made."""
    return entry.with_name(f".{entry.name}.partial")


def _entry_of(lock: Path) -> Path:
    """The entry of a lock file; a folder without one was not made by widenet."""
    return lock.with_name(lock.name.removeprefix(".").removesuffix(".lock"))


def root() -> Path:
    """Return the folder of the cache."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "widenet"
    with suppress(RuntimeError, KeyError):  # of a user without a home directory
        return Path.home() / ".cache" / "widenet"
    return Path(tempfile.gettempdir()) / f"widenet-{os.getuid()}"


def _limit_bytes() -> float:
    text = os.environ.get(LIMIT, "")
    try:
        limit = float(text) if text else _USUAL_GIB
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf"):
        raise OptionError(f"{LIMIT} must be a number of GiB, at least 0; got {text!r}. Correct it.")
    return limit * 2**30


def _using(entry: Path) -> Path:
    """The lock file of the processes that use an entry; its time is that of the last use."""
    return entry.with_name(f".{entry.name}.lock")


def _making(entry: Path) -> Path:
    """The lock file of the process that makes an entry."""
    return entry.with_name(f".{entry.name}.making")


def _opened_lock(path: Path, how: int) -> int:
    """Open and lock a lock file; closing the descriptor ends the lock."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, how)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), path.stat()):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # it was removed with its entry meanwhile


def _removed(copy: Path) -> bool:
    """Remove a copy with its locks unless a process uses or makes it; returns whether it did."""
    locks: list[int] = []
    try:
        for path in (_making(copy), _using(copy)):
            locks.append(_opened_lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
        for path in (copy, partial(copy)):
            shutil.rmtree(path, ignore_errors=True)
        for path in (_making(copy), _using(copy)):
            path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        for lock in locks:
            os.close(lock)
    return True


def _last_use(copy: Path) -> float:
    try:
        return _using(copy).stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size_bytes(copy: Path) -> int:
    size = 0
    for each in (copy, partial(copy)):
        for place, _, names in os.walk(each):
            for name in names:
                with suppress(FileNotFoundError):  # another process has just completed or removed it
                    size += Path(place, name).stat().st_size
    return size
