"""Files of networks are known by their suffixes; what does not go with one is refused."""

from pathlib import Path

import pytest

from tests.dsstne.files import sparse_set, write_netcdf
from tests.frameworks.test_keras_import import dense, layer, numbers, save
from tests.mistakes import mistake
from widenet.errors import CheckpointError, DataError, OptionError
from widenet.interop.formats import format_of
from widenet.interop.import_network import import_network

LAYERS = [layer("InputLayer", "x", batch_shape=[None, 5]), dense("end")]
END = {"dense": ("end", [numbers(5, 2), numbers(2)])}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.keras", "a Keras model"),
        ("a.H5", "a Keras model"),
        ("a.caffemodel", "a Caffe network"),
        ("a.prototxt", "a Caffe network"),
        ("a.nc", "NetCDF, as DSSTNE writes networks"),
    ],
)
def test_a_format_is_known_by_its_suffix(name, kind):
    assert kind == format_of(Path(name)).NAME


@pytest.mark.parametrize("name", ["config.json", "model.pt", "model.onnx", "model"])
def test_other_files_are_no_network(name):
    with mistake(OptionError, option="path"):
        format_of(Path(name))


def test_what_a_file_is_is_said_and_options_of_other_formats_are_refused(tmp_path):
    path, said = save(tmp_path / "x.keras", "Sequential", {"layers": LAYERS}, END), []
    import_network(path, tmp_path / "run", say=said.append)
    assert said == [f"{path}: a Keras model."]
    with mistake(CheckpointError, place="run"):
        import_network(path, tmp_path / "run")
    for option in ("features", "weights"):
        with mistake(OptionError, place="x.keras", option=option):
            import_network(path, tmp_path / "other", **{option: tmp_path / "x"})
    with mistake(DataError, place="y.keras"):
        import_network(tmp_path / "y.keras", tmp_path / "other")
    with mistake(OptionError, place="x.keras"):
        import_network(path, tmp_path / "other", fields={"z": "items"})
    with mistake(OptionError, place="x.keras"):
        import_network(path, tmp_path / "other", fields={"x": "items", "end": "items"})


def test_data_are_no_network(tmp_path):
    attributes, dimensions, variables = sparse_set(0, "items", [[1]])
    write_netcdf(tmp_path / "data.nc", {"datasets": 1, **attributes}, dimensions, variables)
    with mistake(DataError, place="data.nc"):
        import_network(tmp_path / "data.nc", tmp_path / "other")
