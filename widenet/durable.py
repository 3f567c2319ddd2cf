"""What must outlast a power cut."""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def force_to_disk(path: Path) -> None:
    """Wait until a file's bytes, or the names that a folder holds, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def force_all_to_disk(folder: Path) -> None:
    """`force_to_disk` for a folder and all below it."""
    for path in [*folder.rglob("*"), folder]:
        force_to_disk(path)


@contextmanager
def appearing(path: Path) -> Iterator[BinaryIO]:
    """A new file for writing that takes the place of `path`, on disk, when the block ends, and vanishes when
    it fails.

    Raises OSError that names `path`.
    """
    with appearing_together([path]) as (beside,), beside.open("xb") as file:
        yield file


@contextmanager
def appearing_together(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Where to write files that take the places of `paths` when the block ends, once all are on disk, in
    order; all vanish when it fails.

    A file that cannot take its place then leaves those before it in theirs. Raises OSError that names one of
    `paths`.
    """
    beside = [path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial") for path in paths]
    try:
        yield beside
        for each in beside:
            force_to_disk(each)
        for each, path in zip(beside, paths, strict=True):
            each.replace(path)
        for folder in dict.fromkeys(path.parent for path in paths):
            force_to_disk(folder)
    except OSError as error:
        shown = {str(each): str(path) for each, path in zip(beside, paths, strict=True)}
        error.filename = shown.get(str(error.filename), error.filename) or str(
            paths[0]
        )  # a write that fails names no file
        raise
    finally:
        for each in beside:
            with suppress(OSError):  # a name that cannot be is no file to remove, and would hide why
                each.unlink()


def put_in_place(beside: Path, path: Path) -> None:
    """Give a finished directory, which is on disk, the name of an earlier one or a new name.

    A crash leaves the earlier one, this one, or for a moment neither of that name but both beside it. Raises
    OSError; the earlier one then keeps its name, unless this one has it already.
    """
    force_to_disk(beside)
    old = path.with_name(f".{path.name}.old")
    replaces = path.exists()
    if replaces:
        _remove(old)
        path.rename(old)
    try:
        beside.rename(path)
    except OSError:
        if replaces:
            old.rename(path)
        raise
    force_to_disk(path.parent)
    _remove(old)


def _remove(folder: Path) -> None:
    """Remove a directory with all in it, or a link to one alone."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)
