"""The network formats of Caffe, Keras and ONNX; importing this module loads none of their libraries."""

import zipfile
from pathlib import Path
from typing import Any

from widenet.interop.formats import HDF5, ImportOptions, Likeness, text_of
from widenet.late_imports import optional


class Caffe:
    """A Caffe network with its weights."""

    NAME = "a Caffe network with its weights"
    SUFFIXES = (".caffemodel",)
    TAKES: tuple[str, ...] = ()
    FIRST = (b"\x0a", b"\x12", b"\xa2\x06")
    """First bytes of a network: the tag of its name or of its layers."""

    @classmethod
    def likeness(cls, path: Path, head: bytes) -> Likeness:
        """See `NetworkFormat.likeness`."""
        del path
        is_binary = head.startswith(cls.FIRST) and text_of(head) is None
        return Likeness.CONTENT if is_binary else Likeness.NONE

    @classmethod
    def import_model(cls, path: Path, out: Path, options: ImportOptions) -> Any:
        """See `NetworkFormat.import_model`."""
        with optional("protobuf", "caffe"):
            from widenet.frameworks.caffe_import import read_caffe
        from widenet.interop.import_network import write_imported

        return write_imported(read_caffe(path, cls is CaffeText, options.weights), out, options)


class CaffeText(Caffe):
    """A Caffe network as text; its weights lie in another file."""

    NAME = "a Caffe network without weights"
    SUFFIXES = (".prototxt",)
    TAKES = ("weights",)
    WORDS = ("layer {", "layer{", "layers {", "layers{", "input:")

    @classmethod
    def likeness(cls, path: Path, head: bytes) -> Likeness:
        """See `NetworkFormat.likeness`."""
        del path
        text = text_of(head)
        if text is None or text.lstrip()[:1] == "{" or not any(word in text for word in cls.WORDS):
            return Likeness.NONE
        return Likeness.CONTENT


class Keras:
    """A model of Keras 3, a zip."""

    NAME = "a Keras 3 model"
    SUFFIXES = (".keras",)
    TAKES: tuple[str, ...] = ()

    @staticmethod
    def likeness(path: Path, head: bytes) -> Likeness:
        """See `NetworkFormat.likeness`."""
        del head
        try:
            with zipfile.ZipFile(path) as archive:
                return Likeness.CONTENT if "config.json" in archive.namelist() else Likeness.NONE
        except zipfile.BadZipFile:
            return Likeness.NONE

    @staticmethod
    def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
        """See `NetworkFormat.import_model`."""
        with optional("h5py", "keras"):
            from widenet.frameworks.keras_import import read_keras
        from widenet.interop.import_network import write_imported

        return write_imported(read_keras(path), out, options)


class KerasHdf5:
    """The older format of Keras, HDF5."""

    NAME = "a Keras model in HDF5"
    SUFFIXES = (".h5", ".hdf5")
    TAKES: tuple[str, ...] = ()

    @classmethod
    def likeness(cls, path: Path, head: bytes) -> Likeness:
        """See `NetworkFormat.likeness`."""
        return Likeness.CONTENT if head.startswith(HDF5) and cls._is_of_keras(path) else Likeness.NONE

    @classmethod
    def _is_of_keras(cls, path: Path) -> bool:
        """Return whether Keras wrote an HDF5 file; if h5py is not installed, the suffix decides."""
        try:
            import h5py

            with h5py.File(path, "r") as file:
                return "model_config" in file.attrs or "layer_names" in file.attrs
        except (ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError):
            return path.suffix.lower() in cls.SUFFIXES

    @staticmethod
    def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
        """See `NetworkFormat.import_model`."""
        with optional("h5py", "keras"):
            from widenet.frameworks.keras_import import read_keras_h5
        from widenet.interop.import_network import write_imported

        return write_imported(read_keras_h5(path), out, options)


class Onnx:
    """ONNX, which is only written."""

    SUFFIXES = (".onnx",)

    @staticmethod
    def export_model(
        run: Path, out: Path, top_k: int | None, exclude_seen: bool, overwrite: bool
    ) -> list[Path]:
        """See `NetworkWriter.export_model`."""
        with optional("onnx", "onnx"):
            from widenet.frameworks.onnx_export import check_out, export_onnx
        from widenet.runs import Model

        check_out(out, overwrite)
        return export_onnx(Model.load(run, "cpu"), out, top_k, exclude_seen, overwrite)
