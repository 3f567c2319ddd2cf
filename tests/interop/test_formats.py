"""Files of networks are known by what they hold, whatever they are called."""

import io
import zipfile

import pytest

from tests.dsstne.files import sparse_set, write_netcdf
from tests.dsstne.models import connected, fully, write_model
from tests.frameworks.test_caffe_import import trained
from tests.frameworks.test_keras_import import dense, layer, numbers, save, save_h5
from tests.mistakes import mistake
from widenet.errors import CheckpointError, DataError, OptionError
from widenet.interop.formats import format_of
from widenet.interop.import_network import import_network

LAYERS = [layer("InputLayer", "x", batch_shape=[None, 5]), dense("end")]
END = {"dense": ("end", [numbers(5, 2), numbers(2)])}


def written(folder):
    """A file of every kind, called by nothing that says so."""
    dsstne = [
        fully("Input", "Input", 4, data="in", attributes=1),
        fully("Output", "Output", 4, ["Input"], data="out"),
    ]
    write_model(folder / "netcdf", dsstne, connected(0, dsstne))
    save(folder / "keras", "Sequential", {"layers": LAYERS}, END)
    save_h5(folder / "keras_h5", "Sequential", {"layers": LAYERS}, {"end": END["dense"][1]})
    (folder / "prototxt").write_text("# a net\nname: 'n'\nlayer { name: 'x' type: 'Input' top: 'x' }")
    trained(folder / "caffemodel")


def test_every_kind_is_known_by_its_content(tmp_path):
    written(tmp_path)
    names = {
        path.name: format_of(path).NAME for path in tmp_path.iterdir() if path.is_file() and not path.suffix
    }
    assert names == {
        "keras": "a Keras 3 model",
        "keras_h5": "a Keras model in HDF5",
        "caffemodel": "a Caffe network with its weights",
        "prototxt": "a Caffe network without weights",
        "netcdf": "NetCDF, as DSSTNE writes networks",
    }


@pytest.mark.parametrize("name", ["config.json", "model.pt", "model.onnx", "model"])
def test_other_files_are_no_network(name, tmp_path):
    (tmp_path / name).write_text('{"Layers": []}')
    with mistake(OptionError, place=name):
        format_of(tmp_path / name)


def test_what_a_file_is_is_said_and_options_of_other_formats_are_refused(tmp_path):
    path, said = save(tmp_path / "x.bin", "Sequential", {"layers": LAYERS}, END), []
    import_network(path, tmp_path / "run", say=said.append)
    assert said == [f"{path}: a Keras 3 model."]
    with mistake(CheckpointError, place="run"):
        import_network(path, tmp_path / "run")
    for option in ("features", "weights"):
        with mistake(OptionError, place="x.bin", option=option):
            import_network(path, tmp_path / "other", **{option: tmp_path / "x"})
    with mistake(DataError, place="y.bin"):
        import_network(tmp_path / "y.bin", tmp_path / "other")
    with mistake(OptionError, place="x.bin"):
        import_network(path, tmp_path / "other", fields={"z": "items"})
    with mistake(OptionError, place="x.bin"):
        import_network(path, tmp_path / "other", fields={"x": "items", "end": "items"})


def test_data_are_no_network(tmp_path):
    attributes, dimensions, variables = sparse_set(0, "items", [[1]])
    write_netcdf(tmp_path / "data.nc", {"datasets": 1, **attributes}, dimensions, variables)
    with mistake(DataError, place="data.nc"):
        import_network(tmp_path / "data.nc", tmp_path / "other")


def test_a_damaged_archive_is_refused(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("config.json", "{}")
    path = tmp_path / "model.keras"
    path.write_bytes(packed.getvalue().replace(b"PK\x01\x02", b"XXXX"))
    with mistake(DataError, place="model.keras"):
        import_network(path, tmp_path / "run")
