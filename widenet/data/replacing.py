"""Whether a dataset directory may be replaced: only if widenet wrote it, and nothing else is in it."""

from pathlib import Path

from widenet.data.manifest import FILE_NAME, Manifest
from widenet.errors import DataError, WidenetError


def check_free(out: Path, overwrite: bool | None) -> None:
    """Raise DataError unless a dataset may be made at a path; None: the caller cannot overwrite."""
    if overwrite:
        check_replaceable(out)
    elif out.exists():
        rule = "already exists, and a dataset is never overwritten. Choose"
        if overwrite is not None:
            replace = "Replace it with `overwrite=True`, choose" if _is_replaceable(out) else "Choose"
            rule = f"already exists. {replace}"
        raise DataError(f"{out}: {rule} another `out`, or remove it first.")


def _is_replaceable(out: Path) -> bool:
    try:
        check_replaceable(out)
    except DataError:
        return False
    return True


def check_replaceable(out: Path) -> None:
    """Raise DataError unless a path is free, an empty folder, or a dataset with nothing else in its folder.

    The manifest tells which files are the dataset's.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    remedy = "Choose another `out`, or remove it first."
    try:
        own = {FILE_NAME, *Manifest.read(out).files}
    except (WidenetError, OSError):
        raise DataError(
            f"{out}: only a dataset that widenet wrote is replaced; this is none. {remedy}"
        ) from None
    others = sorted(path.name for path in out.iterdir() if path.name not in own)
    if others:
        raise DataError(
            f"{out}: only a dataset is replaced; this folder also holds {others[0]!r}, which is not of it."
            f" {remedy}"
        )
