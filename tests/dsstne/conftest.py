"""What the tests of DSSTNE's files share: NetCDF files written value by value, and read by another
library.
"""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.dsstne.files import write_netcdf

ROOT = Path(__file__).parents[2]


@pytest.fixture
def netcdf(tmp_path):
    """Writes data sets to a file and gives its path; further attributes, dimensions and variables replace
    or join theirs.
    """

    def write(name, *sets, attributes=None, dimensions=None, variables=None, without=()):
        parts = [{"datasets": np.uint32(len(sets))}, {}, {}]
        for found in (*sets, (attributes or {}, dimensions or {}, variables or {})):
            for part, more in zip(parts, found, strict=True):
                part.update(more)
        for part in parts:
            for gone in without:
                part.pop(gone, None)
        return write_netcdf(tmp_path / name, *parts)

    return write


@pytest.fixture
def hdf5():
    """The attributes and variables of a NetCDF file, as HDF5 has them."""

    def read(path):
        with h5py.File(path) as file:
            attributes = {
                name: value.decode() if isinstance(value, bytes) else np.ravel(value)[0]
                for name, value in file.attrs.items()
            }
            return attributes, {name: file[name][()] for name in file}

    return read


@pytest.fixture(scope="session")
def written():
    """The folder of files that DSSTNE's own code wrote, and of what it says of them."""
    folder = Path(os.environ.get("WIDENET_DATA", ROOT.parent / "shared" / "data")) / "dsstne-written"
    if not folder.is_dir():
        pytest.skip(f"no files of DSSTNE at {folder}; set WIDENET_DATA")
    return folder
