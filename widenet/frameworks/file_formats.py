"""The network formats of Caffe, Keras and ONNX; importing this module loads none of their libraries."""

from pathlib import Path
from typing import Any

from widenet.interop.formats import ImportOptions
from widenet.late_imports import optional


class Caffe:
    """A Caffe network with its weights, or as text, whose weights lie in another file."""

    NAME = "a Caffe network"
    SUFFIXES = (".caffemodel", ".prototxt")
    TAKES = ("weights",)

    @staticmethod
    def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
        """See `NetworkFormat.import_model`."""
        with optional("protobuf", "caffe"):
            from widenet.frameworks.caffe_import import read_caffe
        from widenet.interop.import_network import write_imported

        return write_imported(read_caffe(path, options.weights), out, options)


class Keras:
    """A model of Keras 3, a zip, or in the older format, HDF5."""

    NAME = "a Keras model"
    SUFFIXES = (".keras", ".h5", ".hdf5")
    TAKES: tuple[str, ...] = ()

    @staticmethod
    def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
        """See `NetworkFormat.import_model`."""
        with optional("h5py", "keras"):
            from widenet.frameworks.keras_import import read_keras, read_keras_h5
        from widenet.interop.import_network import write_imported

        read = read_keras if path.suffix.lower() == ".keras" else read_keras_h5
        return write_imported(read(path), out, options)


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
