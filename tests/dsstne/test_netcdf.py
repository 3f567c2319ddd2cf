"""NetCDF files of DSSTNE: damaged ones, and ones that name other files."""

import h5py
import numpy as np
import pytest

from tests.dsstne.files import sparse_set
from tests.dsstne.test_data import ROWS, VALUES
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
    with pytest.raises(
        DataError,
        match=r"must hold all of its data; '(sparseData0|more)' refers to another file",
    ):
        import_data([path], tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello", "must be a NetCDF file; its first bytes are those of another format."),
        (None, "must be a NetCDF file; it does not exist."),
        ("half", "must be a whole NetCDF file; "),
    ],
)
def test_what_is_no_whole_netcdf_file_is_refused(netcdf, tmp_path, content, message):
    path = tmp_path / "x.nc"
    if content == "half":
        netcdf("x.nc", sparse_set(0, "items", ROWS))
        content = path.read_bytes()[: path.stat().st_size // 2]
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        import_data([path], tmp_path / "data")
    assert message in str(caught.value)
    assert not (tmp_path / "data").exists()
