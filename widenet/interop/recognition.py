"""What kind of network a file holds, by its content; by its suffix only where the content says nothing."""

import zipfile
from enum import StrEnum
from pathlib import Path

from widenet.errors import OptionError
from widenet.interop.dsstne.signature import begins_as_hdf5, begins_as_netcdf

_HEAD_BYTES = 2**16
_ONNX_FIRST, _CAFFE_FIRST = b"\x08", (b"\x0a", b"\x12", b"\xa2\x06")
"""The first fields that a message of either kind has: ONNX's version; Caffe's name or its layers."""
_CAFFE_WORDS = ("layer {", "layer{", "layers {", "layers{", "input:")


class Kind(StrEnum):
    """Kinds of network files, as a person calls them."""

    onnx = "an ONNX model"
    keras = "a Keras 3 model"
    keras_h5 = "a Keras model in HDF5"
    caffemodel = "a Caffe network with its weights"
    prototxt = "a Caffe network without weights"
    netcdf = "NetCDF, as DSSTNE writes networks"


_SUFFIXES = {
    ".onnx": Kind.onnx,
    ".keras": Kind.keras,
    ".h5": Kind.keras_h5,
    ".hdf5": Kind.keras_h5,
    ".caffemodel": Kind.caffemodel,
    ".prototxt": Kind.prototxt,
    ".nc": Kind.netcdf,
}


def kind_of(path: Path) -> Kind:
    """The kind of a file that exists; raises OptionError, which says what else to do, where it is none."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    found = _by_content(path, head) or _SUFFIXES.get(path.suffix.lower())
    if found is not None:
        return found
    if head.lstrip()[:1] == b"{" or path.suffix.lower() == ".json":
        remedy = "Train it as it is, or say it in widenet's words by `widenet dsstne translate`"
        raise OptionError(f"{path}: must hold a trained network; a JSON document has no weights. {remedy}.")
    if path.suffix.lower() in (".pt", ".pth", ".pkl", ".ckpt"):
        raise OptionError(
            f"{path}: must be no pickle, which would run whatever it holds. Write the network as ONNX, by"
            " torch.onnx.export."
        )
    known = ", ".join(_SUFFIXES)
    raise OptionError(
        f"{path}: must be one of {known}; neither its first bytes nor its suffix are of these. Convert it to"
        " ONNX."
    )


def _by_content(path: Path, head: bytes) -> Kind | None:
    if zipfile.is_zipfile(path):
        return Kind.keras if _holds(path, "config.json") else None
    if begins_as_hdf5(path):
        return Kind.keras_h5 if _holds_keras(path) else Kind.netcdf
    if begins_as_netcdf(path):
        return Kind.netcdf
    text = _text(head)
    if text is not None:
        return (
            Kind.prototxt if any(word in text for word in _CAFFE_WORDS) and text.lstrip()[:1] != "{" else None
        )
    if head.startswith(_ONNX_FIRST):
        return Kind.onnx
    return Kind.caffemodel if head.startswith(_CAFFE_FIRST) else None


def _holds(path: Path, name: str) -> bool:
    """Whether a zip has a file of a name; one that is damaged has none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return name in archive.namelist()
    except zipfile.BadZipFile:
        return False


def _holds_keras(path: Path) -> bool:
    """Whether an HDF5 file is one that Keras wrote, and no NetCDF; without h5py the suffix decides."""
    try:
        import h5py

        with h5py.File(path, "r") as file:
            return "model_config" in file.attrs or "layer_names" in file.attrs
    except (ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError):
        return path.suffix.lower() in (".h5", ".hdf5")


def _text(head: bytes) -> str | None:
    """The beginning of a file as text; None where it is none."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(head) - error.start > 4 or len(head) < _HEAD_BYTES:
            return None
        text = head[: error.start].decode("utf-8")
    return text if all(letter.isprintable() or letter in "\n\r\t" for letter in text) else None
