"""Networks of other programs, told apart by what their files are called."""

from collections.abc import Mapping
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.errors import DataError, OptionError
from widenet.interop.dsstne.signature import is_netcdf
from widenet.interop.imported import Imported, write_run
from widenet.optional import optional
from widenet.runs import Model

_SUFFIXES = (".onnx", ".keras", ".caffemodel", ".prototxt", ".nc")


def import_network(
    path: str | Path,
    out: str | Path,
    *,
    weights: str | Path | None = None,
    data: str | Path | None = None,
    fields: Mapping[str, str] | None = None,
) -> Model:
    """A run that holds a network of another program: it predicts at once, and trainings may begin with its weights.

    path: .onnx, .keras, .caffemodel, or .prototxt with `weights`, a .caffemodel; or a network that DSSTNE trained (NetCDF).
    fields: other names for its inputs and outputs, as the dataset calls them.
    data: a dataset with those fields; without it, dense inputs stay dense, and features are named by their index.
    Raises DataError, which names every layer without a counterpart, OptionError, FitError, CheckpointError.
    """
    path, out = Path(path), Path(out)
    if not path.is_file():
        raise DataError(f"{path}: no such file. Check the path.")
    if weights is not None and path.suffix != ".prototxt":
        raise OptionError(f"weights belong to a .prototxt; got {path}, which holds its own. Leave them out.")
    if is_netcdf(path):
        return _of_dsstne(path, out, data, fields)
    imported = _read(path, None if weights is None else Path(weights)).with_fields(fields or {})
    return write_run(imported, out, None if data is None else Dataset.open(data))


def _of_dsstne(path: Path, out: Path, data: str | Path | None, fields: Mapping[str, str] | None) -> Model:
    with optional("netCDF4", "dsstne"):
        from widenet.interop.dsstne.model import import_model
    return import_model(path, out, data=data, fields=fields)


def _read(path: Path, weights: Path | None) -> Imported:
    match path.suffix:
        case ".onnx":
            with optional("onnx", "onnx"):
                from widenet.interop.onnx_import import read_onnx
            return read_onnx(path)
        case ".keras":
            with optional("h5py", "keras"):
                from widenet.interop.keras_import import read_keras
            return read_keras(path)
        case ".caffemodel" | ".prototxt":
            with optional("protobuf", "caffe"):
                from widenet.interop.caffe_import import read_caffe
            return read_caffe(path, weights)
    raise OptionError(f'{path}: the suffix must be one of {", ".join(_SUFFIXES)}; got "{path.suffix}". Rename the file.')
