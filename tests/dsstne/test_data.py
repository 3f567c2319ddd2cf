"""DSSTNE's NetCDF data become a dataset that says the same."""

from pathlib import Path

import numpy as np
import pytest

from tests.dsstne.files import dense_set, sparse_set
from tests.mistakes import mistake
from tests.rows import dense_rows
from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.dsstne import data
from widenet.dsstne.data import import_data
from widenet.dsstne.netcdf import Column
from widenet.errors import DataError

ROWS = [[3, 1], [], [7, 0, 2]]
VALUES = [[3.5, -1.0], [], [0.25, 2.0, 1.0]]


def imported(path, tmp_path, **options):
    import_data([path] if isinstance(path, Path) else path, tmp_path / "data", **options)
    dataset = Dataset.open(tmp_path / "data")
    verify(dataset.path, dataset.manifest)
    return dataset


def dense_of(dataset, field, part="train"):
    width = dataset.field(field).width
    return dense_rows(dataset.sparse(field, slice(0, None), part), width).numpy()


def one_hot(rows, values=None, width=8):
    dense = np.zeros((len(rows), width), np.float32)
    for number, row in enumerate(rows):
        for place, index in enumerate(row):
            dense[number, index] += 1 if values is None else values[number][place]
    return dense


@pytest.mark.parametrize("starts", ["u4", "u8"])
@pytest.mark.parametrize("values", [None, VALUES])
def test_a_sparse_set_becomes_a_sparse_field(netcdf, tmp_path, values, starts):
    dataset = imported(netcdf("x.nc", sparse_set(0, "items", ROWS, values, starts=starts)), tmp_path)
    assert dataset.field("items").has_values == (values is not None)
    assert np.array_equal(dense_of(dataset, "items"), one_hot(ROWS, values))
    assert dataset.ids(slice(0, None)) == ["0", "1", "2"]
    assert dataset.vocabulary("items").ids([0, 7]) == ["0", "7"]
    assert dataset.vocabulary("items").counts.tolist() == [1, 1, 1, 1, 0, 0, 0, 1]
    assert dataset.manifest.name == "x"


@pytest.mark.parametrize(
    "data_type", ["UInt", "Int", "LLInt", "ULLInt", "Float", "Double", "RGB8", "RGB16", "UChar", "Char"]
)
def test_every_type_of_data_is_read(netcdf, tmp_path, data_type):
    values = [[100, 1], [], [7, 0, 9]]
    sets = (
        sparse_set(0, "items", ROWS, values, data_type=data_type),
        dense_set(1, "marks", [[100, 1], [5, 7], [0, 3]], data_type=data_type, sides=(2,)),
    )
    dataset = imported(netcdf("x.nc", *sets), tmp_path)
    divisor, shift = {"RGB8": (256, 0.5), "RGB16": (65536, 0.5), "UChar": (256, 0.5), "Char": (128, 0)}.get(
        data_type, (1, 0)
    )
    assert np.array_equal(dense_of(dataset, "items"), one_hot(ROWS, values))
    assert np.array_equal(
        dataset.dense("marks", slice(0, None)).numpy(),
        np.array([[100, 1], [5, 7], [0, 3]], "f4") / divisor - shift,
    )


def test_rows_may_lie_anywhere_in_a_file_and_blocks_do_not_show(netcdf, tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    rows = [sorted(rng.choice(5000, size=rng.integers(0, 40), replace=False).tolist()) for _ in range(60)]
    attributes, dimensions, variables = sparse_set(0, "items", rows, sides=(5000,))
    order = rng.permutation(60)
    shuffled, ends = (
        sparse_set(0, "items", [rows[n] for n in order], sides=(5000,))[2],
        np.empty(60, np.int64),
    )
    starts = np.empty(60, np.int64)
    starts[order], ends[order] = shuffled["sparseStart0"][2], shuffled["sparseEnd0"][2]
    variables |= {
        "sparseIndex0": shuffled["sparseIndex0"],
        "sparseStart0": ("u8", "uniqueExamplesDim0", starts),
        "sparseEnd0": ("u8", "uniqueExamplesDim0", ends),
    }
    path = netcdf("x.nc", (attributes, dimensions, variables))
    whole = import_data([path], tmp_path / "whole")
    monkeypatch.setattr(data, "NUMBERS_PER_BLOCK", 50)
    pieces = import_data([path], tmp_path / "pieces")
    assert whole.files == pieces.files
    assert dense_of(Dataset.open(tmp_path / "pieces"), "items").sum() == sum(map(len, rows))
    assert np.array_equal(dense_of(Dataset.open(tmp_path / "whole"), "items"), one_hot(rows, width=5000))


def test_examples_far_apart_are_read_without_what_lies_between_them(netcdf, tmp_path, monkeypatch):
    """Two examples in each block of an Indexed set are from the beginning and the end of its variables."""
    rows, index = [[number % 8] * 4 for number in range(3000)], [0, 2999, 1, 2998, 1, 2]
    attributes, dimensions, variables = sparse_set(0, "items", rows, np.ones((3000, 4)), flags=["Indexed"])
    dimensions |= {"examplesDim0": 6, "uniqueExamplesDim0": 3000}
    variables["index0"] = ("u4", "examplesDim0", index)
    path, read, numbers = netcdf("x.nc", (attributes, dimensions, variables)), [], Column.numbers

    def counted(column, start, stop):
        read.append(stop - start)
        return numbers(column, start, stop)

    monkeypatch.setattr(data, "NUMBERS_PER_BLOCK", 8)
    monkeypatch.setattr(Column, "numbers", counted)
    dataset = imported(path, tmp_path)
    assert np.array_equal(dense_of(dataset, "items"), 4 * np.eye(8)[[row % 8 for row in index]])
    assert sum(read) < 300


def test_repeated_indices_add_up_their_values_and_are_counted(netcdf, tmp_path):
    rows, values = [[5, 2, 5], [1], [4, 4, 4]], [[1.0, 2.0, 0.5], [1.0], [1.0, 2.0, 4.0]]
    path = netcdf("x.nc", sparse_set(0, "items", rows, values), sparse_set(1, "plain", rows))
    dataset = imported(path, tmp_path)
    assert np.array_equal(dense_of(dataset, "items"), one_hot(rows, values))
    assert np.array_equal(dense_of(dataset, "plain"), np.minimum(one_hot(rows), 1))
    assert dataset.manifest.source["repeated_indices_merged"] == 6


def test_example_weights_are_those_that_the_sets_agree_on(netcdf, tmp_path):
    weight = {f"dataWeight{n}": ("f4", f"examplesDim{n}", [1.0, 0.5, 2.0]) for n in (0, 1)}
    sets = [sparse_set(n, name, ROWS, flags=["Weighted"]) for n, name in enumerate(["input", "output"])]
    assert imported(netcdf("x.nc", *sets, variables=weight), tmp_path).weights(slice(0, None)).tolist() == [
        1.0,
        0.5,
        2.0,
    ]
    weight["dataWeight1"] = ("f4", "examplesDim1", [1.0, 0.5, 3.0])
    with mistake(DataError, place="data set 'output'"):
        import_data([netcdf("y.nc", *sets, variables=weight)], tmp_path / "other")


def test_index_files_name_features_and_examples_and_take_the_padding_off(netcdf, tmp_path):
    (tmp_path / "features").write_text("c\t2\na\t0\nd\t3\nb\t1\n")
    (tmp_path / "samples").write_text("u2\t1\nu1\t0\nu3\t2\n")
    path = netcdf("x.nc", sparse_set(0, "items", [[3, 1], [], [0]], sides=(128,)))
    dataset = imported(path, tmp_path, features=tmp_path / "features", samples=tmp_path / "samples")
    assert dataset.field("items").width == 4
    assert dataset.vocabulary("items").ids([0, 1, 2, 3]) == ["a", "b", "c", "d"]
    assert dataset.ids(slice(0, None)) == ["u1", "u2", "u3"]
