"""The older network format of Keras, HDF5, for `widenet import`."""

from pathlib import Path
from typing import Any

from widenet.interop.formats import ImportOptions, Likeness
from widenet.optional import optional

NAME = "a Keras model in HDF5"
SUFFIXES = (".h5", ".hdf5")
TAKES: tuple[str, ...] = ()
_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def likeness(path: Path, head: bytes) -> Likeness:
    """See `NetworkFormat.likeness`."""
    return Likeness.CONTENT if head.startswith(_SIGNATURE) and _is_of_keras(path) else Likeness.NONE


def _is_of_keras(path: Path) -> bool:
    """Return whether Keras wrote an HDF5 file; if h5py is not installed, the suffix decides."""
    try:
        import h5py

        with h5py.File(path, "r") as file:
            return "model_config" in file.attrs or "layer_names" in file.attrs
    except (ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError):
        return path.suffix.lower() in SUFFIXES


def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
    """See `NetworkFormat.import_model`."""
    with optional("h5py", "keras"):
        from widenet.frameworks.keras_import import read_keras_h5
    from widenet.interop.imported import write_imported

    return write_imported(read_keras_h5(path), out, options)
