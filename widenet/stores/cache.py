"""The local folder for copies of what is in stores: bounded, with a lock for each entry."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from widenet.errors import OptionError
from widenet.stores.uri import Uri

FOLDER, LIMIT = "WIDENET_CACHE", "WIDENET_CACHE_GIB"
"""Environment variables: the folder, and the size of the copies at which the oldest are removed."""

_USUAL_GIB = 50.0
_held: dict[Path, int] = {}
"""The locks of the copies that this process reads; they end with the process."""


def root() -> Path:
    """Return the folder of the cache."""
    if named := os.environ.get(FOLDER):
        return Path(named).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():
        return base / "widenet"
    with suppress(RuntimeError, KeyError):  # of a user without a home directory
        return Path.home() / ".cache" / "widenet"
    return Path(tempfile.gettempdir()) / f"widenet-{os.getuid()}"


def folder(kind: str) -> Path:
    """Return a folder of the cache, and make it: "copies", "unsent" or "runs"."""
    path = root() / kind
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.parent.stat().st_uid != os.getuid() and FOLDER not in os.environ:
            raise PermissionError(1, "it belongs to another user")
    except OSError as error:
        rule = f"must be a folder for copies from stores, which {FOLDER} names: {error.strerror}"
        raise OptionError(rule, place=path) from None
    return path


def holds(path: Path) -> bool:
    """Whether a path is of a copy in the cache."""
    return path.absolute().is_relative_to(root())


def entry_name(uri: Uri, *more: str) -> str:
    """Return the name of an entry for a URI, and for the further texts that it depends on."""
    digest = hashlib.sha256("\n".join([str(uri), *more]).encode()).hexdigest()[:24]
    start = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in uri.name[:60])
    return f"{start}-{digest}"


def partial(entry: Path) -> Path:
    """Return the folder beside an entry in which it is made."""
    return entry.with_name(f".{entry.name}.partial")


@contextmanager
def locked(entry: Path) -> Iterator[None]:
    """Let only one process make an entry at a time; the others wait."""
    lock = _locked(entry.with_name(f".{entry.name}.making"), fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(lock)


def copy(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a copy by its name, which is not removed before this process ends.

    Args:
        name: Its name.
        fill: Fills an empty folder; one process calls it while the others wait.
    """
    entry = folder("copies") / name
    if entry not in _held:
        _held[entry] = _locked(entry.with_name(f".{name}.lock"), fcntl.LOCK_SH)
        os.utime(_held[entry])
    if not entry.exists():
        with locked(entry):
            if not entry.exists():
                partial(entry).mkdir(exist_ok=True)
                fill(partial(entry))
                partial(entry).rename(entry)
        make_room()
    return entry


def make_room() -> None:
    """Remove the copies that were unused for the longest time, until the rest is within the limit."""
    text = os.environ.get(LIMIT) or str(_USUAL_GIB)
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < float("inf"):
        raise OptionError("must be a number of GiB, at least 0", place=LIMIT, value=text)
    locks = sorted(folder("copies").glob(".*.lock"), key=lambda lock: lock.stat().st_mtime)
    copies = [lock.with_name(lock.name.removeprefix(".").removesuffix(".lock")) for lock in locks]
    sizes = {entry: _size_bytes(entry) for entry in copies}
    excess = sum(sizes.values()) - limit * 2**30
    for entry in copies:
        if excess > 0 and entry not in _held and _removed(entry):
            excess -= sizes[entry]


def _locked(path: Path, how: int) -> int:
    """Open and lock a lock file; closing the descriptor ends the lock.

    Who uses an entry shares NAME.lock, whose time is that of the last use. Who makes one has NAME.making:
    somebody may still use one that was removed by hand.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, how)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _removed(entry: Path) -> bool:
    """Remove a copy unless a process uses or makes it; returns whether it did. Its empty locks stay."""
    with ExitStack() as stack:
        for suffix in ("making", "lock"):
            path = entry.with_name(f".{entry.name}.{suffix}")
            try:
                stack.callback(os.close, _locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
            except BlockingIOError:
                return False
        for path in (entry, partial(entry)):
            shutil.rmtree(path, ignore_errors=True)
    return True


def _size_bytes(entry: Path) -> int:
    size = 0
    for each in (entry, partial(entry)):
        for place, _, names in os.walk(each):
            for name in names:
                with suppress(FileNotFoundError):  # another process has just completed or removed it
                    size += Path(place, name).stat().st_size
    return size
