"""Files and folders that survive a crash or a power cut: they appear complete, or not at all."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO


def force_to_disk(path: Path) -> None:
    """Wait until the content of a file, or the list of names in a folder, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def force_all_to_disk(folder: Path) -> None:
    """Force a folder and everything below it to disk."""
    for path in [*folder.rglob("*"), folder]:
        force_to_disk(path)


def remove(path: Path, wholly: bool = False) -> None:
    """Remove a file, a link, or a directory with its content.

    Args:
        path: What is removed.
        wholly: Whether to raise OSError if the system does not let go of something in a directory.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not wholly)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def appearing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the block ends; if the block fails, the file is removed.

    Raises:
        OSError: Writing failed; the error names `path`.
    """
    with appearing_together([path]) as (beside,), beside.open("xb") as file:
        yield file


@contextmanager
def appearing_together(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Give the paths of temporary files that replace `paths`, in order, when the block ends.

    The files are renamed once all of them are on disk. If the block or a rename fails, all are removed, and
    earlier files come back. Earlier files of several paths have hidden names meanwhile, so that a crash
    leaves no earlier file beside a new one; the next call for the same paths brings them back first.

    Raises:
        OSError: Writing or renaming failed; the error names one of `paths`.
    """
    beside = [path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial") for path in paths]
    try:
        if len(paths) > 1:
            with _alone(paths[0].parent):
                _bring_back(paths)
        yield beside
        for temporary in beside:
            force_to_disk(temporary)
        several = paths if len(paths) > 1 else []
        with _alone(paths[0].parent) if several else nullcontext(), _set_aside(several):
            for temporary, path in zip(beside, paths, strict=True):
                temporary.replace(path)
        for folder in dict.fromkeys(path.parent for path in paths):
            force_to_disk(folder)
    except OSError as error:
        final_names = {str(temporary): str(path) for temporary, path in zip(beside, paths, strict=True)}
        # A failed write names no file.
        error.filename = final_names.get(str(error.filename), error.filename) or str(paths[0])
        raise
    finally:
        for temporary in beside:
            # An invalid name cannot be removed either; that error would hide the first one.
            with suppress(OSError):
                temporary.unlink()


def put_in_place(beside: Path, path: Path, kept: Path | None = None) -> None:
    """Rename a finished directory to `path`, and remove an earlier directory of that name, or keep it.

    After a crash, `path` is the earlier directory or the new one. If the crash came between the two renames,
    `path` does not exist, and both directories stand beside it.

    Args:
        beside: The finished directory.
        path: Its final path.
        kept: Where an earlier directory stays, if it does.

    Raises:
        OSError: Renaming failed; the earlier directory keeps its name, unless the new one has it already.
    """
    force_to_disk(beside)
    old = kept or _old(path)
    replaces = path.exists()
    try:
        if replaces:
            remove(old)
            path.rename(old)
        beside.rename(path)
    except BaseException:
        if replaces and old.exists() and not path.exists():
            old.rename(path)
        raise
    force_to_disk(path.parent)
    if kept is None:
        remove(old)


@contextmanager
def _set_aside(paths: Sequence[Path]) -> Iterator[None]:
    """Give files hidden names, and remove them when the block ends; if it fails, all is as before."""
    new = [path for path in paths if not path.exists()]
    paths = [path for path in paths if path not in new]
    try:
        for path in paths:
            path.replace(_old(path))
        yield
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        for path in _hidden(paths):
            _old(path).replace(path)
        raise
    for folder in dict.fromkeys(path.parent for path in paths):
        force_to_disk(folder)
    for path in paths:
        _old(path).unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from renaming files of a folder together, where its disk knows locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _bring_back(paths: Sequence[Path]) -> None:
    """End what a crash has left: files as they were before, or after if all of them were in place."""
    hidden = _hidden(paths)
    is_whole = all(path.exists() for path in paths)
    for number, path in enumerate(paths):
        if path in hidden:
            _old(path).unlink() if is_whole else _old(path).replace(path)
        elif not is_whole and any(later in hidden for later in paths[number:]):
            # Earlier files are set aside in order, so that this one is new.
            path.unlink(missing_ok=True)


def _hidden(paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths if _old(path).is_file()]


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")
