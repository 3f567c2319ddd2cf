"""Networks of other programs, told apart by what their files hold."""

from collections.abc import Callable, Mapping
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.errors import DataError, OptionError
from widenet.interop.imported import Imported, write_run
from widenet.interop.recognition import Kind, kind_of
from widenet.optional import optional
from widenet.runs import Model


def import_network(
    path: str | Path,
    out: str | Path,
    *,
    weights: str | Path | None = None,
    data: str | Path | None = None,
    features: Mapping[str, Path] | Path | None = None,
    fields: Mapping[str, str] | None = None,
    say: Callable[[str], None] | None = None,
) -> Model:
    """A run that holds a network of another program: it predicts at once, and trainings may begin with its
    weights.

    path: an ONNX, Keras or Caffe file, with `weights`, a .caffemodel, for a .prototxt; or a network that
    DSSTNE trained (NetCDF).
    fields: other names for its inputs and outputs, as the dataset calls them.
    data: a dataset with those fields; without it, dense inputs stay dense, and features are named as the file
    does, or by their index.
    features: DSSTNE's index files, see `interop.dsstne.model.import_model`. say: told what the file is, and
    what is not what it seems. Raises DataError, which names every layer without a counterpart, OptionError,
    FitError, CheckpointError.
    """
    path, out = Path(path), Path(out)
    if not path.is_file():
        raise DataError(f"{path}: no such file. Check the path.")
    kind = kind_of(path)
    if weights is not None and kind is not Kind.prototxt:
        raise OptionError(f"weights belong to a .prototxt; got {path}, which holds its own. Leave them out.")
    if features is not None and kind is not Kind.netcdf:
        raise OptionError(
            f"`features` are index files of DSSTNE's networks; {path} is {kind}. Give `data`, a dataset with"
            " names."
        )
    if kind is Kind.netcdf:
        with optional("netCDF4", "dsstne"):
            from widenet.interop.dsstne.model import import_model
        model = import_model(path, out, data=data, features=features, fields=fields, say=say)
    else:
        imported = _read(path, kind, None if weights is None else Path(weights)).with_fields(fields or {})
        model = write_run(imported, out, None if data is None else Dataset.open(data))
    if say is not None:
        say(f"{path}: {kind}.")
    return model


def _read(path: Path, kind: Kind, weights: Path | None) -> Imported:
    if kind is Kind.onnx:
        with optional("onnx", "onnx"):
            from widenet.interop.onnx_import import read_onnx
        return read_onnx(path)
    if kind in (Kind.keras, Kind.keras_h5):
        with optional("h5py", "keras"):
            from widenet.interop.keras_import import read_keras, read_keras_h5
        return read_keras(path) if kind is Kind.keras else read_keras_h5(path)
    with optional("protobuf", "caffe"):
        from widenet.interop.caffe_import import read_caffe
    return read_caffe(path, kind is Kind.prototxt, weights)
