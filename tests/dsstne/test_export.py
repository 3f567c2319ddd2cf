"""Datasets are written as DSSTNE's NetCDF data, and come back as they were."""

import numpy as np
import pytest

from tests.dsstne.files import dense_set, sparse_set
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.dsstne.data import import_data
from widenet.dsstne.export import export_data

ROWS = [[1, 3], [], [0, 2, 7]]
VALUES = [[3.0, 1.0], [], [5.0, 2.0, 1.0]]


def imported(path, out, **options):
    import_data([path], out, **options)
    return Dataset.open(out)


def test_a_dataset_comes_back_to_the_bit(tmp_path):
    before = dataset_from_lists(
        tmp_path / "before",
        ROWS,
        values=[[0.5, -1.0], [], [1e-30, 2.0, 3.0]],
        heldout=[[0], [1], []],
        weights=[1.0, 0.25, 2.0],
        width=9,
        sparse={"country": [[1], [0], [1]]},
        dense={"age": [[1.5, 2], [3, 4], [5, 6]]},
    )
    export_data(before, tmp_path / "x.nc")
    after = imported(tmp_path / "x.nc", tmp_path / "after")
    assert after.digest == before.digest
    assert after.vocabulary("items").counts.tolist() == before.vocabulary("items").counts.tolist()


def test_another_library_reads_what_is_written(tmp_path, hdf5):
    dataset_from_lists(
        tmp_path / "data",
        ROWS,
        values=VALUES,
        width=8,
        heldout=[[1], [], []],
        dense={"age": [[1.5], [2], [3]]},
    )
    export_data(tmp_path / "data", tmp_path / "x.nc")
    attributes, variables = hdf5(tmp_path / "x.nc")
    wanted = {"name": "items", "attributes": 1, "kind": 0, "dataType": 4, "dimensions": 1, "width": 8}
    assert {name: attributes[f"{name}0"] for name in wanted} == wanted
    assert [attributes[f"name{n}"] for n in range(attributes["datasets"])] == [
        "items",
        "items.heldout",
        "age",
    ]
    assert [attributes[f"attributes{n}"] for n in range(3)] == [1, 1, 0]
    assert {
        name: variables[f"{name}0"].tolist()
        for name in ("sparseStart", "sparseEnd", "sparseIndex", "sparseData")
    } == {
        "sparseStart": [0, 2, 2],
        "sparseEnd": [2, 2, 5],
        "sparseIndex": [1, 3, 0, 2, 7],
        "sparseData": [3.0, 1.0, 5.0, 2.0, 1.0],
    }
    assert variables["sparseStart0"].dtype == variables["sparseIndex0"].dtype == np.uint32
    assert variables["data2"].tolist() == [1.5, 2, 3]
    assert {
        name: len(variables[name])
        for name in ("examplesDim0", "uniqueExamplesDim0", "sparseDataDim0", "dataDim2")
    } == {
        "examplesDim0": 3,
        "uniqueExamplesDim0": 3,
        "sparseDataDim0": 5,
        "dataDim2": 3,
    }


@pytest.mark.parametrize(
    "data_type", ["UInt", "Int", "LLInt", "ULLInt", "Float", "Double", "RGB8", "RGB16", "UChar", "Char"]
)
def test_a_set_keeps_its_type_and_its_numbers(netcdf, tmp_path, hdf5, data_type):
    marks = [[100, 1], [5, 7], [0, 3]]
    sets = (
        sparse_set(
            0,
            "items",
            ROWS,
            VALUES,
            data_type=data_type,
            flags=["SparseIgnoreZero", "Compressed"],
            sides=(4, 2),
        ),
        dense_set(1, "marks", marks, data_type=data_type, sides=(1, 1, 2), kind=1),
        dense_set(2, "labels", marks, data_type=data_type, sides=(2,)),
    )
    before = netcdf("before.nc", *sets)
    import_data([before], tmp_path / "data", targets=["labels"])
    export_data(tmp_path / "data", tmp_path / "after.nc")
    (attributes, variables), (attributes_after, variables_after) = hdf5(before), hdf5(tmp_path / "after.nc")
    attributes.pop("_NCProperties")
    assert {name: attributes_after[name] for name in attributes} == attributes
    for name in ("sparseIndex0", "sparseData0", "data1", "data2"):
        assert variables_after[name].dtype == variables[name].dtype
        assert np.array_equal(variables_after[name], variables[name])


def test_weights_stand_beside_the_targets_that_are_named(tmp_path, hdf5):
    dataset_from_lists(tmp_path / "data", ROWS, weights=[1, 2, 3], sparse={"next": ROWS})
    export_data(tmp_path / "data", tmp_path / "x.nc", targets=["next"])
    attributes, variables = hdf5(tmp_path / "x.nc")
    assert (attributes["attributes0"], attributes["attributes1"]) == (3, 131)
    assert variables["dataWeight1"].tolist() == [1, 2, 3]


def named(path):
    """A dataset of users a, b, c, whose items and countries have names."""
    dataset_from_lists(
        path / "plain", ROWS, width=8, sparse={"country": [[1], [0], [1]]}, dense={"age": [[1.5], [2], [3]]}
    )
    export_data(path / "plain", path / "plain.nc")
    for name, texts in {
        "items": ["ø", *"wxyz", "5", "6", "ü"],
        "country": ["fr", "de"],
        "users": ["c", "a", "b"],
    }.items():
        (path / name).write_text("".join(f"{text}\t{index}\n" for index, text in enumerate(texts)), "utf-8")
    features = {"items": path / "items", "country": path / "country"}
    import_data([path / "plain.nc"], path / "data", features=features, samples=path / "users")
    return Dataset.open(path / "data")


def test_names_go_out_as_index_files_and_within_the_file(tmp_path, hdf5):
    before, out = (
        named(tmp_path),
        {name: tmp_path / f"{name}.index" for name in ("items", "country", "users")},
    )
    features = {"items": out["items"], "country": out["country"]}
    export_data(before, tmp_path / "x.nc", features=features, samples=out["users"])
    for name, path in out.items():
        assert path.read_bytes() == (tmp_path / name).read_bytes()
    _, variables = hdf5(tmp_path / "x.nc")
    assert [name.decode() for name in variables["indToFeature1"]] == ["fr", "de"]
    assert [name.decode() for name in variables["samples"]] == ["c", "a", "b"]
    assert "indToFeature2" not in variables
    assert imported(tmp_path / "x.nc", tmp_path / "after").digest == before.digest
    assert imported(tmp_path / "plain.nc", tmp_path / "unnamed").digest != before.digest
    assert "samples" not in hdf5(tmp_path / "plain.nc")[1]
