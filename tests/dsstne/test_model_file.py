"""Networks that DSSTNE's own writer wrote: read, computed, and written back name by name."""

import re

import netCDF4
import numpy as np
import pytest

from tests.dsstne.models import connected, fully, write_model
from tests.dsstne.test_model import autoencoder, scores
from widenet.dsstne import netcdf
from widenet.dsstne.model import import_model
from widenet.dsstne.model_export import export_model
from widenet.dsstne.model_file import read_model
from widenet.errors import DataError, WidenetError

CONVOLVED = "layer0_type"
"""Only an input of type Convolutional has axes in DSSTNE; these networks came from documents without a
Type.
"""
CHANGED = {
    "act_params": r"layer\d_(RELUSlope|ELUAlpha|SELULambda)",
    "c3ok": CONVOLVED,
    "conv1d": CONVOLVED,
    "conv1d_k3": rf"{CONVOLVED}|weight0_length",
    "conv_basic": CONVOLVED,
    "conv_kernel_gt_width": CONVOLVED,
    "conv_stride": CONVOLVED,
    "h_Cosine": None,
    "hidden_list": r"layer1_(Nx|Ny|Nz|dimensions)",
    "lrn": CONVOLVED,
    "maxout": None,
    "multisrc": r"weight\d_bias",
    "out_conv_s2": CONVOLVED,
    "out_conv_valid": CONVOLVED,
    "out_skip": None,
    "pool_overlap": CONVOLVED,
    "shared_ok": r"weight3_(bTransposed|sourceInputLayer|sourceOutputLayer|bShared|weights|weightDim)",
    "skip_from_input": None,
    "sparse_int": r"layer1_sparsenessPenalty_(p|beta)",
    "weights_data": "kind|maxout_k",
}
"""Every network, and what of it is not written back as it was."""
TOLERANCE = 2**-19
"""32 roundings of float32, 2^-24 each, of numbers up to 1: the walk of a sum of 480 products is about 22,
and that of the rest less.
"""


@pytest.fixture(scope="module", params=CHANGED)
def way(request, written, tmp_path_factory):
    """A network's name, its file, and the run that it became."""
    path = written / "networks" / f"{request.param}.nc"
    return request.param, path, import_model(path, tmp_path_factory.mktemp(request.param) / "run")


def contents(path):
    """Attributes, dimensions and variables, of which each has its dimensions, type and numbers."""
    with netCDF4.Dataset(path) as file:
        variables = {
            name: (found.dimensions, found.dtype, np.array(found[:]))
            for name, found in file.variables.items()
        }
        return (
            {name: file.getncattr(name) for name in file.ncattrs()},
            {name: len(found) for name, found in file.dimensions.items()},
            variables,
        )


def test_every_network_of_the_folder_is_here(written):
    assert sorted(path.stem for path in (written / "networks").glob("*.nc")) == sorted(CHANGED)


def test_it_computes_what_dsstne_does(way):
    _, path, model = way
    with np.load(path.with_suffix(".npz")) as rows:
        inputs = {name.removeprefix("input/"): rows[name] for name in rows if name.startswith("input/")}
        outputs = {name.removeprefix("output/"): rows[name] for name in rows if name.startswith("output/")}
    assert outputs
    for name, truth in outputs.items():
        assert np.abs(scores(model, inputs, name) - truth).max() <= TOLERANCE * max(1, np.abs(truth).max())


def test_it_is_written_back_name_by_name(way, tmp_path):
    name, path, model = way
    export_model(model, tmp_path / "back.nc")
    (attributes, dimensions, variables), (their_attributes, their_dimensions, their_variables) = (
        contents(tmp_path / "back.nc"),
        contents(path),
    )
    changed = {
        found
        for found in attributes.keys() | their_attributes.keys()
        if not _same(attributes.get(found), their_attributes.get(found))
    }
    changed |= {found for found, _ in dimensions.items() ^ their_dimensions.items()}
    for found in variables.keys() | their_variables.keys():
        pair = variables.get(found), their_variables.get(found)
        if None in pair or pair[0][:2] != pair[1][:2] or pair[0][2].tobytes() != pair[1][2].tobytes():
            changed.add(found)
    wrong = {found for found in changed if CHANGED[name] is None or not re.fullmatch(CHANGED[name], found)}
    assert not wrong
    assert bool(changed) == (CHANGED[name] is not None)


def _same(one, other):
    return type(one) is type(other) and one == other


def test_biases_of_several_sources_keep_their_sum_and_copied_weights_those_of_their_owner(written, tmp_path):
    for name in ("multisrc", "shared_ok"):
        export_model(
            import_model(written / "networks" / f"{name}.nc", tmp_path / name), tmp_path / f"{name}.nc"
        )
    one, other = contents(tmp_path / "multisrc.nc")[2], contents(written / "networks" / "multisrc.nc")[2]
    for numbers in ((0, 1), (2, 3), (4, 5, 6)):
        sums = [
            np.sum([file[f"weight{number}_bias"][2] for number in numbers], axis=0, dtype=np.float64)
            for file in (one, other)
        ]
        np.testing.assert_array_equal(sums[0].astype("f4"), sums[1].astype("f4"))
    shared = contents(tmp_path / "shared_ok.nc")[2]
    owner = shared["weight0_weights"][2].reshape(14, 6)
    np.testing.assert_array_equal(shared["weight3_weights"][2].reshape(6, 14), owner.T)


def test_sides_that_no_kernel_gives_are_refused(tmp_path):
    image = fully("Image", "Input", 8, data="image", more={"Ny": 6, "Nz": 2, "dimensions": 3})
    window = {
        "type": 1,
        "kernelX": 3,
        "kernelY": 3,
        "kernelStrideX": 1,
        "kernelStrideY": 1,
        "kernelDimensions": 2,
        "kernelPaddingX": 0,
    }
    output = fully("Output", "Output", 6, ["Image"], activation="Linear", data="class")
    loss = {"errorFunction": np.uint32(1)}
    output["more"] = {**window, "kernelPaddingY": 1, "Ny": 4, "Nz": 1, "dimensions": 3}
    path = write_model(
        tmp_path / "x.nc",
        [image, output],
        {("Image", "Output"): (np.zeros((1, 2, 3, 3), "f4"), np.zeros(1, "f4"))},
        **loss,
    )
    with pytest.raises(
        DataError,
        match=r"layer 'Output' must have as many places as its kernel has positions, \[6, 6\]; got \[6, 4\]",
    ):
        read_model(path)
    output["more"]["Ny"] = 6
    path = write_model(
        tmp_path / "y.nc",
        [image, output],
        {("Image", "Output"): (np.zeros((1, 2, 3, 3), "f4"), np.zeros(1, "f4"))},
        **loss,
    )
    assert read_model(path).paddings == {"Output": (0, 1)}
    assert import_model(path, tmp_path / "run").run.network.layers[1].padding == (1, 0)


def share(source, layer):
    """Makes the decoder use the weights of another connection."""
    values = {"bShared": np.uint32(1), "sourceInputLayer": source, "sourceOutputLayer": layer}
    return lambda file: [file.setncattr(f"weight1_{name}", value) for name, value in values.items()]


def ends(source, layer):
    """Makes the weights of the decoder lie between other layers."""
    return lambda file: [
        file.setncattr(f"weight1_{key}", value)
        for key, value in {"inputLayer": source, "outputLayer": layer}.items()
    ]


def broken(path, layers, change):
    with netCDF4.Dataset(write_model(path, layers, connected(1, layers)), "a") as file:
        change(file)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.delncattr("layers"),
         "must hold a trained network; attribute 'layers' is missing."),
        (lambda file: file.delncattr("layer1_name"),
         "attribute 'layer1_name' must be a text; it is missing."),
        (lambda file: file.setncattr("layer1_name", "Input"),
         "the names of layers must differ; 'Input' appears twice."),
        (
            lambda file: file.setncattr("layer1_dimensions", np.uint32(5)),
            "attribute 'layer1_dimensions' must be a whole number from 1 to 4; got 5.",
        ),
        (lambda file: file.setncattr("layer1_kind", np.uint32(4)),
         "attribute 'layer1_kind' must be a code below 4; got 4."),
        (lambda file: file.setncattr("layer1_activation", np.uint32(13)),
         "attribute 'layer1_activation' must be a code below 13; got 13."),
        (lambda file: file.setncattr("layer1_Nx", np.uint32(5)),
         "variable 'weight0_bias' must hold 5 numbers; its shape is [6]."),
        (lambda file: file.setncattr("layer0_Nx", np.uint32(11)),
         "variable 'weight0_weights' must hold 66 numbers; its shape is [60]."),
        (lambda file: file.setncattr("weights", np.uint32(1)),
         "must have weights from its source 'Hidden1'; they are missing."),
        (lambda file: file.setncattr("weight1_inputLayer", "None"), "must name layers; got 'None'."),
        (ends("Input", "Hidden1"), "each of its sources; those of 'Input' to 'Hidden1' appear twice."),
        (ends("Input", "Output"), "those of 'Input' to 'Output' belong to no source of 'Output'."),
        (lambda file: file.variables["weight1_bias"].__setitem__(3, np.nan),
         'the weights "Output bias" must be finite numbers.'),
        (
            share("x", "y"),
            "the shared weights of 'Hidden1' to 'Output' must be those of a connection"
            " that has its own; got x to y.",
        ),
        (
            share("Input", "Hidden1"),
            "must have the shape [10, 6]; those of Input to Hidden1 have [6, 10].",
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_one_sentence_and_leaves_nothing(tmp_path, change, message):
    broken(tmp_path / "x.nc", autoencoder(), change)
    with pytest.raises(WidenetError) as caught:
        import_model(tmp_path / "x.nc", tmp_path / "run")
    assert str(caught.value).startswith(str(tmp_path / "x.nc"))
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["x.nc"]


def test_weights_that_no_memory_holds_are_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(netcdf, "_SMALL_READ_BYTES", 100)
    monkeypatch.setattr(netcdf, "available_memory", lambda: 400)
    layers = autoencoder()
    write_model(tmp_path / "x.nc", layers, connected(1, layers))
    with pytest.raises(
        DataError,
        match=r"variable 'weight0_weights' holds 60 values, which do not fit in 400 B of free memory",
    ):
        import_model(tmp_path / "x.nc", tmp_path / "run")


def share(source, layer):
    """Makes the decoder use the weights of another connection."""
    values = {"bShared": np.uint32(1), "sourceInputLayer": source, "sourceOutputLayer": layer}
    return lambda file: [file.setncattr(f"weight1_{name}", value) for name, value in values.items()]
