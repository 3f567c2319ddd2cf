"""NetCDF files of DSSTNE: ones that name other files, and classic ones that are cut short."""

import contextlib

import h5py
import netCDF4
import numpy as np
import pytest

from tests.dsstne.files import sparse_set
from tests.dsstne.test_data import ROWS, VALUES
from tests.mistakes import mistake
from widenet.dsstne.data import import_data
from widenet.dsstne.netcdf import min_file_bytes
from widenet.errors import DataError, WidenetError


@pytest.mark.parametrize("way", ["bytes", "virtual", "link", "linked group"])
def test_a_file_that_names_other_files_is_refused_and_those_are_not_read(netcdf, tmp_path, way):
    secret, path = (
        tmp_path / "secret",
        netcdf("x.nc", sparse_set(0, "items", ROWS, VALUES), without=["sparseData0"]),
    )
    with h5py.File(secret, "w") as file:
        file["numbers"] = np.arange(5, dtype=np.float32)
    with h5py.File(path, "a") as file:
        if way == "bytes":
            file.create_dataset("sparseData0", (5,), "f4", external=[(str(secret), 0, 20)])
        elif way == "virtual":
            layout = h5py.VirtualLayout((5,), "f4")
            layout[:] = h5py.VirtualSource(str(secret), "numbers", (5,))
            file.create_virtual_dataset("sparseData0", layout)
        else:
            file["sparseData0" if way == "link" else "more"] = h5py.ExternalLink(
                str(secret), "numbers" if way == "link" else "/"
            )
    if way != "bytes":
        secret.unlink()  # so that whoever opens it fails otherwise
    with mistake(DataError, place="x.nc"):
        import_data([path], tmp_path / "data")
    assert not (tmp_path / "data").exists()


FORMS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]


def write(path, form, num_records=0):
    """A sparse set of 30 examples, its variables of several types; and variables along records, where some
    are asked for.
    """
    with netCDF4.Dataset(path, "w", format=form) as file:
        whole = {"datasets": 1, "attributes0": 3, "kind0": 0, "dataType0": 0, "dimensions0": 1, "width0": 9}
        file.setncatts(
            {name: np.int32(value) for name, value in whole.items()}
            | {"name0": "items", "more": np.array([1.5, 2.5])}
        )
        for name, length in {"time": None, "odd": 3, "examplesDim0": 30, "sparseDataDim0": 60}.items():
            file.createDimension(name, length)
        for number, letter in enumerate(["i1", "f8"] if num_records else []):
            file.createVariable(f"along{number}", letter, ("time", "odd"))[:] = np.ones((num_records, 3))
        starts = np.arange(30) * 2
        for name, numbers in {"sparseStart0": starts, "sparseEnd0": starts + 2}.items():
            file.createVariable(name, "i4", ("examplesDim0",))[:] = numbers
        file.createVariable("sparseIndex0", "i2", ("sparseDataDim0",))[:] = np.tile([7, 8], 30)
    return path


@pytest.mark.parametrize("num_records", [0, 1, 4])
@pytest.mark.parametrize("form", FORMS)
def test_a_file_must_reach_to_its_last_number(form, num_records, tmp_path):
    path = write(tmp_path / "x.nc", form, num_records)
    whole = path.read_bytes()
    needed = min_file_bytes(path)
    assert len(whole) - 3 <= needed <= len(whole)
    assert import_data([path], tmp_path / "data").num_examples == 30
    for kept in (needed - 1, needed - 60, len(whole) // 2, 100, 9):
        path.write_bytes(whole[:kept])
        with mistake(DataError, place="x.nc"):
            import_data([path], tmp_path / "cut")
    assert not (tmp_path / "cut").exists()


@pytest.mark.parametrize("form", FORMS)
def test_whatever_became_of_a_header_is_read_or_refused_in_one_sentence(form, tmp_path):
    path, random = write(tmp_path / "x.nc", form, 2), np.random.default_rng(1)
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    for number in range(60):
        damaged = whole.copy()
        damaged[random.integers(4, 700, random.integers(1, 4))] = random.integers(0, 256)
        path.write_bytes(damaged.tobytes())
        with contextlib.suppress(WidenetError):
            import_data([path], tmp_path / str(number))
