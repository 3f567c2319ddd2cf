"""Networks that DSSTNE's own writer wrote: read, computed, and written back name by name."""

import re

import netCDF4
import numpy as np
import pytest

from tests.dsstne.models import fully, write_model
from tests.dsstne.test_model import scores
from tests.mistakes import mistake
from widenet.dsstne.model_export import export_model
from widenet.dsstne.model_file import read_model
from widenet.dsstne.model_import import import_model
from widenet.errors import DataError

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
    window = {"type": 1, "kernelX": 3, "kernelY": 3, "kernelStrideX": 1, "kernelStrideY": 1, "dimensions": 3}
    window |= {"kernelDimensions": 2, "kernelPaddingX": 0, "kernelPaddingY": 1, "Nz": 1}
    output = fully("Output", "Output", 6, ["Image"], activation="Linear", data="class")
    weights = {("Image", "Output"): (np.zeros((1, 2, 3, 3), "f4"), np.zeros(1, "f4"))}

    def written(height):
        layers = [image, {**output, "more": {**window, "Ny": height}}]
        return write_model(tmp_path / f"{height}.nc", layers, weights, errorFunction=np.uint32(1))

    with mistake(DataError, place="layer 'Output'"):
        read_model(written(4))
    assert read_model(written(6)).paddings == {"Output": (0, 1)}
    assert import_model(written(6), tmp_path / "run").run.network.layers[1].padding == (1, 0)
