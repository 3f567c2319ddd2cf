"""NetCDF files of DSSTNE: ones that name other files, and older formats."""

import h5py
import netCDF4
import numpy as np
import pytest

from tests.dsstne.files import sparse_set
from tests.dsstne.test_data import ROWS, VALUES
from tests.mistakes import mistake
from widenet.dsstne.data import import_data
from widenet.errors import DataError


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


@pytest.mark.parametrize("form", ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"])
def test_older_formats_are_refused(form, tmp_path):
    with netCDF4.Dataset(tmp_path / "x.nc", "w", format=form) as file:
        file.setncattr("datasets", np.int32(1))
    with mistake(DataError, place="x.nc"):
        import_data([tmp_path / "x.nc"], tmp_path / "data")
    assert not (tmp_path / "data").exists()
