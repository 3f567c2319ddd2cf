"""Heaps of an HDF5 file over which HDF5 would loop are refused before it reads them."""

import h5py
import pytest

from tests.mistakes import mistake
from widenet.dsstne.netcdf import reading
from widenet.errors import DataError
from widenet.interop.hdf5 import check_heaps

HEAP = b"GCOL\x01\0\0\0"


@pytest.fixture(params=["earliest", "v110"])
def path(request, tmp_path):
    """A file with texts in three heaps."""
    path = tmp_path / "a.nc"
    with h5py.File(path, "w", libver=request.param) as file:
        for name in "abc":
            file.create_dataset(name, data=["ä" * 1400, name])
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
    with path.open("rb") as file, pytest.raises(OSError, match="damaged"):
        check_heaps(file)
    with mistake(DataError, place=path), reading(path):
        pass


@pytest.mark.parametrize(
    "hidden_by", ["an object beyond its heap", "a heap beyond the file", "a heap around it"]
)
def test_nothing_hides_a_damaged_heap(path, hidden_by):
    data = bytearray(path.read_bytes())
    second = data.rindex(HEAP)
    place = free_space(data[second:]) + second
    data[place : place + 8] = bytes(8)
    first = data.index(HEAP)
    if hidden_by == "an object beyond its heap":
        data[first + 24 : first + 32] = (2**40).to_bytes(8, "little")
    elif hidden_by == "a heap beyond the file":
        data[first + 8 : first + 16] = (2**40).to_bytes(8, "little")
    else:
        length = len(data) - first
        data[first + 8 : first + 16] = length.to_bytes(8, "little")
        data[first + 24 : first + 32] = ((length - 32) // 8 * 8).to_bytes(8, "little")
    path.write_bytes(data)
    with path.open("rb") as file, pytest.raises(OSError, match="damaged"):
        check_heaps(file)


def test_a_heap_is_found_where_two_blocks_meet(path, monkeypatch):
    data = path.read_bytes()
    damaged = bytearray(data)
    place = free_space(data)
    damaged[place : place + 8] = bytes(8)
    path.write_bytes(damaged)
    for cut in range(1, 8):
        monkeypatch.setattr("widenet.interop.hdf5._BLOCK_BYTES", data.index(HEAP) + cut)
        with path.open("rb") as file, pytest.raises(OSError, match="damaged"):
            check_heaps(file)
