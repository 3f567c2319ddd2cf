"""DSSTNE's text becomes the NetCDF file and the index files that its generator makes."""

from pathlib import Path

import numpy as np
import pytest

from tests.rows import dense_rows
from widenet.data.dataset import Dataset
from widenet.dsstne.data import import_data
from widenet.dsstne.text import generate


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(lines, **options):
    Path("in.txt").write_text("".join(f"{line}\n" for line in lines))
    said = []
    generate(
        "input",
        Path("in.txt"),
        Path("out.nc"),
        Path("features"),
        Path("samples"),
        **{"new_features": "create", "say": said.append} | options,
    )
    return said


def test_indicators_are_listed_in_the_order_of_samples(place, hdf5):
    said = made(["u1\tc:a", "", "u2\tb", "u1\tb:a:a"])
    attributes, variables = hdf5(place / "out.nc")
    wanted = {
        "datasets": 1,
        "name0": "input",
        "attributes0": 3,
        "kind0": 0,
        "dataType0": 0,
        "dimensions0": 1,
        "width0": 128,
    }
    assert {name: attributes[name] for name in wanted} == wanted
    columns = {name: variables[name].tolist() for name in ("sparseStart0", "sparseEnd0", "sparseIndex0")}
    assert columns == {"sparseStart0": [0, 3], "sparseEnd0": [3, 4], "sparseIndex0": [2, 1, 1, 2]}
    assert {variables[name].dtype for name in columns} == {np.dtype("u4")}
    assert "sparseData0" not in variables
    assert Path("features").read_text() == "c\t0\na\t1\nb\t2\n"
    assert Path("samples").read_text() == "u1\t0\nu2\t1\n"
    assert len(said) == 1


def test_analog_entries_have_values_and_those_without_one_zero(place, hdf5):
    said = made(["u1\ta,1.5:b,2,7:c", "u2\tb,-3"], analog=True)
    attributes, variables = hdf5(place / "out.nc")
    assert (attributes["attributes0"], attributes["dataType0"]) == (1, 4)
    assert variables["sparseData0"].tolist() == [1.5, 2.0, 0.0, -3.0]
    assert variables["sparseData0"].dtype == np.float32
    assert (len(said), said[0].startswith("in.txt: line 1: 1 ")) == (2, True)


def test_what_is_no_entry_is_skipped_and_told(place, hdf5):
    said = made(["u1 a", "u2\t:a::", "u3", "u4\t"])
    assert hdf5(place / "out.nc")[1]["sparseEnd0"].tolist() == [1, 1]
    assert (len(said), said[0].startswith("in.txt: line 1: 2 ")) == (2, True)


def test_unknown_features_are_dropped_or_added(place, hdf5):
    Path("features").write_text("b\t1\na\t0\n")
    made(["u\tz:a:y:b"], new_features="drop")
    assert hdf5(place / "out.nc")[1]["sparseIndex0"].tolist() == [0, 1]
    assert Path("features").read_text() == "b\t1\na\t0\n"
    made(["u\tz:a:y:b"], new_features="merge")
    assert hdf5(place / "out.nc")[1]["sparseIndex0"].tolist() == [2, 0, 3, 1]
    assert Path("features").read_text() == "a\t0\nb\t1\nz\t2\ny\t3\n"


@pytest.mark.usefixtures("place")
def test_files_of_one_index_of_samples_go_together():
    made(["u1\ta", "u2\tb", "u3\tc"])
    Path("out.txt").write_text("u4\tp\nu3\tq\n")
    generate("output", "out.txt", "output.nc", "labels", "samples", new_features="create")
    assert Path("samples").read_text() == "u1\t0\nu2\t1\nu3\t2\nu4\t3\n"
    made(["u1\ta", "u2\tb", "u3\tc"])
    import_data(
        ["out.nc", "output.nc"], "data", features={"input": "features", "output": "labels"}, samples="samples"
    )
    dataset = Dataset.open("data")
    assert dataset.ids(slice(0, None)) == ["u1", "u2", "u3", "u4"]
    assert dense_rows(dataset.sparse("output", slice(0, None)), 2).tolist() == [
        [0, 0],
        [0, 0],
        [0, 1],
        [1, 0],
    ]
    assert dense_rows(dataset.sparse("input", slice(0, None)), 3).tolist() == [
        [1, 0, 0],
        [0, 1, 0],
        [0, 0, 1],
        [0, 0, 0],
    ]
