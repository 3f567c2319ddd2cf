"""Heaps of an HDF5 file over which HDF5 would loop are refused before it reads them."""

import h5py
import numpy as np
import pytest

from widenet.dsstne.netcdf import reading
from widenet.errors import DataError
from widenet.interop.hdf5 import check_heaps

HEAP = b"GCOL\x01\0\0\0"


@pytest.fixture(params=["earliest", "v110"])
def path(request, tmp_path):
    """A file with texts in two heaps, one of which looks like a heap itself."""
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", libver=request.param) as file:
        file.attrs["texts"] = ["a", "ä" * 300]
        numbers = file.create_dataset("numbers", 1, h5py.vlen_dtype("u1"))
        numbers[0] = np.frombuffer(HEAP + (64).to_bytes(8, "little") + bytes(40), "u1")
        file.attrs["long"] = ["c" * 20_000]
    return path


def free_space(data):
    """The place of the size of the first free space in the first heap."""
    place = data.index(HEAP) + 16
    while int.from_bytes(data[place : place + 2], "little"):
        place += 16 + -(-int.from_bytes(data[place + 8 : place + 16], "little") // 8) * 8
    return place + 8


def test_sound_heaps_pass(path):
    assert path.read_bytes().count(HEAP) == 3
    with path.open("rb") as file:
        check_heaps(file)


@pytest.mark.parametrize("size", [0, 15])
def test_free_space_without_a_size_is_refused(path, size):
    data = bytearray(path.read_bytes())
    place = free_space(data)
    data[place : place + 8] = size.to_bytes(8, "little")
    path.write_bytes(data)
    with path.open("rb") as file, pytest.raises(OSError, match="a heap of texts is damaged"):
        check_heaps(file)
    with pytest.raises(DataError, match="must be a whole NetCDF file"), reading(path):
        pass


def test_a_heap_is_found_where_two_blocks_meet(path, monkeypatch):
    data = path.read_bytes()
    damaged = bytearray(data)
    place = free_space(data)
    damaged[place : place + 8] = bytes(8)
    path.write_bytes(damaged)
    for cut in range(1, 8):
        monkeypatch.setattr("widenet.interop.hdf5._BLOCK_BYTES", data.index(HEAP) + cut)
        with path.open("rb") as file, pytest.raises(OSError, match="a heap of texts is damaged"):
            check_heaps(file)
