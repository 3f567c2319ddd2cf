"""Documents and files of DSSTNE that break a rule: the class of the error and its place."""

from pathlib import Path

import netCDF4
import numpy as np
import pytest

from tests.dsstne.files import dense_set, sparse_set
from tests.dsstne.models import connected, write_model
from tests.dsstne.test_data import ROWS, VALUES
from tests.dsstne.test_model import autoencoder
from tests.dsstne.test_spec import INPUT, OUTPUT, config, hidden
from tests.mistakes import mistake
from widenet.dsstne import netcdf as netcdf_module
from widenet.dsstne.data import import_data
from widenet.dsstne.encoder import encoder
from widenet.dsstne.model_import import import_model
from widenet.dsstne.spec.network import translation
from widenet.dsstne.text import generate
from widenet.errors import DataError, DocumentError, OptionError
from widenet.runs import Silence
from widenet.spec.network import NetworkSpec

HIDDEN = {"Kind": "Hidden", "Name": "H", "N": 4}
OUT = {**OUTPUT, "N": 3}
SECOND = {**OUT, "Name": "Second"}
DOCUMENTS = [
    (config(Versoin=0.8), "Versoin"),
    (config(WeightData="x"), "WeightData"),
    (config(CheckPointName="x"), "CheckPointName"),
    (config(Version=0.6), "Version"),
    (config(Kind="Recurrent"), "Kind"),
    (config(ErrorFunction="SMCE"), "ErrorFunction"),
    (config(Denoising={"q": 1}), "Denoising.q"),
    (config(Denoising={"p": 2}), "Denoising.p"),
    (config(Decay=-1), "Decay"),
    (config(ShuffleIndices="yes"), "ShuffleIndices"),
    (config(Layers=[]), "Layers"),
    ({**config(), "version": 1}, "config.json"),
    (config(Slope=1, RELUSlope=2), "config.json"),
    (config(LRN={}, LocalResponseNormalization={}), "config.json"),
    (config(hidden(ErrorFunction="L2")), "Layers[1].ErrorFunction"),
    (config(hidden(N="auto")), "Layers[1].N"),
    (config(hidden(N=0)), "Layers[1].N"),
    (config(hidden(N=7.5)), "Layers[1].N"),
    (config(hidden(N=1e300)), "Layers[1].N"),
    (config(hidden(Kind="Pooling")), "Layers[1].Kind"),
    (config(hidden(Kind="Target")), "Layers[1].Kind"),
    (config(hidden(Type="Convolution")), "Layers[1].Type"),
    (config(hidden(Type="Convolutional", WeightNorm=2)), "Layers[1].WeightNorm"),
    (config(hidden(Type="Convolutional", Kernel=[3, 2], N=[10, 9])), "Layers[1].N"),
    (config(hidden(Type="Pooling")), "Layers[1].Function"),
    (config(hidden(Activation="ParametricRectifiedLinear")), "Layers[1].Activation"),
    (config(hidden(pDropout=1)), "Layers[1].pDropout"),
    (config(hidden(DataSet="x")), "Layers[1].DataSet"),
    (config(hidden(WeightInit={"Scheme": "He"})), "Layers[1].WeightInit.Scheme"),
    (config(hidden(WeightNorm="big")), "Layers[1].WeightNorm"),
    (config(hidden(SharedWeights=[{}, {"x": 1}])), "Layers[1].SharedWeights[1].x"),
    (config(last={"SharedWeights": {"Transpose": True}}), "Layers[1].SharedWeights.Transpose"),
    (config(last={"BatchNormalization": True}), "Layers[1].BatchNormalization"),
    (config(last={"Skip": "In"}), "Layers[1].N"),
    (config(last={"Type": "Pooling"}), "Layers[1].Function"),
    (config(last={"Source": 3}), "Layers[1].Source"),
    ({"Layers": [INPUT, {**OUTPUT, "N": "auto"}, SECOND]}, "Layers"),
]


@pytest.mark.parametrize(("document", "place"), DOCUMENTS, ids=[place for _, place in DOCUMENTS])
def test_a_document_that_breaks_a_rule(document, place):
    with mistake(DocumentError, place=place):
        translation(document, "config.json")


@pytest.mark.parametrize(
    "layers",
    [
        [INPUT, {**OUT, "Activation": "Tanh"}],
        [INPUT, {**HIDDEN, "Source": "Out"}, OUT],
        [INPUT, {**HIDDEN, "Name": "Out"}, OUT, SECOND],
        [HIDDEN, OUT, SECOND],
        [INPUT, {**HIDDEN, "Skip": "Nope"}, OUT],
    ],
)
def test_a_document_that_breaks_a_rule_of_this_project(layers):
    with pytest.raises(DocumentError, match=r"^config\.json, translated: "):
        NetworkSpec.of({"Layers": layers}, "config.json")


COMMANDS = [
    ({"Network": "a", "Data": "b"}, "file.cdl"),
    ({"Network": "a", "Data": "b", "Command": "Test"}, "Command"),
    ({"Network": "a", "Data": "b", "Command": "Train"}, "file.cdl"),
    ({"Network": "a", "Data": ["b"], "Command": "Train"}, "Data"),
    ({"PredictionParameters": {}}, "PredictionParameters"),
    (
        {"Network": "a", "Data": "b", "Command": "Train", "TrainingParameters": {"MiniBatch": 5}},
        "TrainingParameters.MiniBatch",
    ),
    (
        {
            "Network": "a",
            "Data": "b",
            "Command": "Train",
            "TrainingParameters": {"Epochs": 3, "Optimizer": "adam"},
        },
        "TrainingParameters.Optimizer",
    ),
]


@pytest.mark.parametrize(("command", "place"), COMMANDS)
def test_a_command_file_that_breaks_a_rule(command, place, tmp_path, monkeypatch):
    monkeypatch.setattr("widenet.dsstne.encoder._CommandFile.read_values", lambda _: command)
    with mistake(DocumentError, place=place):
        encoder(tmp_path / "file.cdl", Silence())


ITEMS = sparse_set(0, "items", ROWS, VALUES)
SET, ANY = "data set 'items'", "data set 'x'"


def column(name, values, letter="u4", dimension="uniqueExamplesDim0"):
    return {"variables": {f"{name}0": (letter, dimension, values)}}


def dense(rows, sides=(2,), **more):
    return [dense_set(0, "x", rows, sides=sides, **more)]


WIDE = {"attributes": {"width0": np.uint32(2**32 - 1)}}
DATA = [
    ({"without": ["datasets"]}, "attribute 'datasets'"),
    ({"without": ["name0"]}, "attribute 'name0'"),
    ({"without": ["dataType0"]}, "attribute 'dataType0'"),
    ({"attributes": {"name0": 3}}, "attribute 'name0'"),
    ({"attributes": {"width0": 0}}, "attribute 'width0'"),
    ({"attributes": {"dataType0": 12}}, "attribute 'dataType0'"),
    ({"attributes": {"kind0": 3}}, "attribute 'kind0'"),
    ({"attributes": {"attributes0": 256}}, "attribute 'attributes0'"),
    ({"attributes": {"dimensions0": 4}}, "attribute 'dimensions0'"),
    ({"attributes": {"dimensions0": 2, "height0": 2**31}}, SET),
    (column("sparseIndex", [3, 1, 7, 8, 2], dimension="sparseDataDim0"), SET),
    (column("sparseIndex", [b"\1"] * 5, "S1", "sparseDataDim0"), "variable 'sparseIndex0'"),
    (column("sparseStart", [0, 3, 2]), SET),
    (column("sparseEnd", [2, 2, 6]), SET),
    (column("sparseEnd", [2, 2, 2**64 - 1], "u8"), "variable 'sparseEnd0'"),
    (column("sparseData", [1, 2, np.nan, 1, 1], "f4", "sparseDataDim0"), SET),
    (column("sparseData", [1, 2, 3], "f4"), "variable 'sparseData0'"),
    ({"without": ["sparseData0"]}, "variable 'sparseData0'"),
    ({"without": ["sparseIndex0"]}, "variable 'sparseIndex0'"),
    ({"sets": [sparse_set(0, "x", [[1]], [[1e300]], data_type="Double")]}, ANY),
    ({"sets": [sparse_set(0, "x", [[5, 5]], [[3e38, 3e38]], data_type="Double")]}, ANY),
    ({"sets": dense([[1.0, np.inf], [2, 3]])}, ANY),
    ({"sets": dense([[1.0, 2], [2, 3]], (3,))}, "variable 'data0'"),
    ({"sets": dense([1, 5], (5,), data_type="Int", flags=["Boolean"])}, ANY),
    ({"sets": dense([[1, 2]]), **WIDE}, ANY),
    ({"sets": [sparse_set(0, "x", ROWS, flags=["Indexed"])], **column("index", [0, 3, 1])}, ANY),
    ({"sets": [sparse_set(0, "x", ROWS, flags=["Weighted"])], **column("dataWeight", [0, 1, -1], "f4")}, ANY),
    ({"sets": [sparse_set(0, "x", ROWS), sparse_set(1, "x", ROWS)]}, ANY),
    ({"sets": [sparse_set(0, "x", ROWS), sparse_set(1, "y", ROWS[:2])]}, "data set 'y'"),
    ({"sets": [sparse_set(0, "x", ROWS), sparse_set(1, "x.heldout", ROWS)]}, None),
]


@pytest.mark.parametrize(("changes", "place"), DATA)
def test_data_that_break_a_rule_leave_nothing(netcdf, tmp_path, changes, place):
    sets = changes.get("sets", [ITEMS])
    path = netcdf("bad.nc", *sets, **{key: value for key, value in changes.items() if key != "sets"})
    with mistake(DataError, place=place):
        import_data([path], tmp_path / "data")
    assert [found.name for found in tmp_path.iterdir()] == ["bad.nc"]


@pytest.mark.parametrize("content", [b"hello", None, "half"])
def test_what_is_no_whole_netcdf_file(netcdf, tmp_path, content):
    path = tmp_path / "x.nc"
    if content == "half":
        content = netcdf("x.nc", ITEMS).read_bytes()[: path.stat().st_size // 2]
    if content is not None:
        path.write_bytes(content)
    with mistake(DataError, place="x.nc"):
        import_data([path], tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("text", "place", "line"),
    [
        ("a\t0\nb 1\n", "features", 2),
        ("a\t0\na\t1\n", "features", 2),
        ("a\t0\nb\t2\n", "features", None),
        ("a\t0\nb\t0\n", "features", None),
        ("", "features", None),
        ("".join(f"{n}\t{n}\n" for n in range(9)), "features", None),
        ("a\t0\nb\t1\n", SET, None),
        (None, "features", None),
    ],
)
def test_an_index_file_that_breaks_a_rule(netcdf, tmp_path, text, place, line):
    if text is not None:
        (tmp_path / "features").write_text(text)
    with mistake(DataError, place=place, line=line):
        import_data([netcdf("x.nc", ITEMS)], tmp_path / "data", features=tmp_path / "features")
    with mistake(DataError, place=f"{tmp_path}"):
        import_data([tmp_path / "x.nc"], tmp_path / "data", features=tmp_path)


def test_options_must_name_what_is_there(netcdf, tmp_path):
    path = netcdf("x.nc", ITEMS)
    for options in ({"targets": ["itms"]}, {"features": {"x": "y"}}):
        with mistake(OptionError, option=next(iter(options))):
            import_data([path], tmp_path / "data", **options)
    (tmp_path / "samples").write_text("u\t0\n")
    with mistake(DataError, place="samples"):
        import_data([path], tmp_path / "data", samples=tmp_path / "samples")
    with mistake(OptionError, option="sources"):
        import_data([], tmp_path / "data")


def share(source, layer):
    """Makes the decoder use the weights of another connection."""
    values = {"bShared": np.uint32(1), "sourceInputLayer": source, "sourceOutputLayer": layer}
    return lambda file: [file.setncattr(f"weight1_{name}", value) for name, value in values.items()]


def ends(source, layer):
    """Makes the weights of the decoder lie between other layers."""
    values = {"inputLayer": source, "outputLayer": layer}
    return lambda file: [file.setncattr(f"weight1_{key}", value) for key, value in values.items()]


def set_to(name, value):
    return lambda file: file.setncattr(name, value if isinstance(value, str) else np.uint32(value))


NETWORKS = [
    (lambda file: file.delncattr("layers"), "x.nc"),
    (lambda file: file.delncattr("layer1_name"), "attribute 'layer1_name'"),
    (set_to("layer1_name", "Input"), "x.nc"),
    (set_to("layer1_dimensions", 5), "attribute 'layer1_dimensions'"),
    (set_to("layer1_kind", 4), "attribute 'layer1_kind'"),
    (set_to("layer1_activation", 13), "attribute 'layer1_activation'"),
    (set_to("layer1_Nx", 5), "variable 'weight0_bias'"),
    (set_to("layer0_Nx", 11), "variable 'weight0_weights'"),
    (set_to("weights", 1), "layer 'Output'"),
    (set_to("weight1_inputLayer", "None"), "x.nc"),
    (ends("Input", "Hidden1"), "layer 'Hidden1'"),
    (ends("Input", "Output"), "layer 'Output'"),
    (lambda file: file.variables["weight1_bias"].__setitem__(3, np.nan), 'weights "Output bias"'),
    (share("x", "y"), "x.nc"),
    (share("Input", "Hidden1"), "x.nc"),
]


@pytest.mark.parametrize(("change", "place"), NETWORKS)
def test_a_trained_network_that_breaks_a_rule_leaves_nothing(tmp_path, change, place):
    layers = autoencoder()
    with netCDF4.Dataset(write_model(tmp_path / "x.nc", layers, connected(1, layers)), "a") as file:
        change(file)
    with mistake(DataError, place=place):
        import_model(tmp_path / "x.nc", tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["x.nc"]


def test_weights_that_no_memory_holds_are_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(netcdf_module, "_SMALL_READ_BYTES", 100)
    monkeypatch.setattr(netcdf_module, "available_memory", lambda: 400)
    layers = autoencoder()
    write_model(tmp_path / "x.nc", layers, connected(1, layers))
    with mistake(DataError, place="variable 'weight0_weights'"):
        import_model(tmp_path / "x.nc", tmp_path / "run")


TEXTS = [
    (b"no samples here\n", {}, DataError, "in.txt"),
    (b"u\ta,x\n", {}, DataError, "in.txt: line 1"),
    (b"u\ta,1\nu\ta,1e39\n", {}, DataError, "in.txt: line 2"),
    (b"u\ta,nan\n", {}, DataError, "in.txt: line 1"),
    (b"u\ta\nv\t\xff\n", {}, DataError, "in.txt: line 2"),
    (b"\ta\n", {}, DataError, "in.txt: line 1"),
    (b"u\ta\n", {"new_features": "merge"}, OptionError, "features"),
    (b"u\ta\n", {"source": "absent"}, DataError, "absent"),
    (b"u\ta\n", {"source": "empty"}, DataError, "empty"),
    (b"u\ta\n", {"samples": "absent/samples"}, OptionError, "absent/samples"),
    (b"u\ta\n", {"samples": "features"}, OptionError, "features"),
    (b"u\ta\n", {"samples": "wrong"}, DataError, "wrong"),
]


@pytest.mark.parametrize(("text", "changes", "kind", "place"), TEXTS)
def test_text_that_breaks_a_rule_leaves_nothing(text, changes, kind, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_bytes(text)
    Path("wrong").write_text("u 0\n")
    Path("empty").mkdir()
    names = {"source": "in.txt", "out": "out.nc", "features": "features", "samples": "samples"}
    with mistake(kind, place=place):
        generate("input", **{**names, "new_features": "create", "analog": True, **changes})
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "wrong", "empty"}
