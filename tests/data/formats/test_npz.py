"""Matrices in .npz files: the types of their numbers, and indices that are refused."""

import zipfile

import numpy as np
import pytest

from tests.data.test_formats import refusal
from widenet.data.ingest import ingest


@pytest.mark.parametrize(
    "arrays",
    [
        {"format": b"coo", "row": [10**13], "col": [0]},
        {"format": b"coo", "row": [0], "col": [2]},
        {"format": b"csc", "indices": [2], "indptr": [0, 1, 1]},
        {"format": b"csr", "indices": [-7], "indptr": [0, 1, 1]},
    ],
)
def test_a_matrix_of_indices_beyond_its_shape_is_refused(tmp_path, arrays):
    np.savez(tmp_path / "m.npz", shape=(2, 2), data=[1.0], **arrays)
    assert "its indices lie outside its shape" in refusal(tmp_path / "m.npz", tmp_path)


@pytest.mark.parametrize("kind", ["complex128", "U4", "M8[s]", [("a", "f4")], "longdouble"])
def test_a_matrix_of_other_than_numbers_is_refused(kind, tmp_path):
    values = np.zeros(2, kind)
    np.savez(tmp_path / "m.npz", format=b"csr", shape=(2, 2), indptr=[0, 1, 2], indices=[0, 1], data=values)
    assert f"its values are of the type {values.dtype}" in refusal(tmp_path / "m.npz", tmp_path)


def test_indices_with_fractions_are_refused(tmp_path):
    np.savez(
        tmp_path / "m.npz", format=b"csr", shape=(2, 2), indptr=[0, 1, 2], indices=[0.0, 1.5], data=[1.0, 2.0]
    )
    assert "its indices are of the type float64" in refusal(tmp_path / "m.npz", tmp_path)


@pytest.mark.parametrize("kind", [">f8", ">i4", "float16", "bool"])
def test_a_matrix_may_hold_numbers_of_any_type(kind, tmp_path):
    arrays = {
        "indptr": np.array([0, 1, 2], ">i4"),
        "indices": np.array([0, 1], ">i4"),
        "data": np.ones(2, kind),
    }
    np.savez(tmp_path / "m.npz", format=b"csr", shape=(2, 2), **arrays)
    assert ingest(tmp_path / "m.npz", tmp_path / "data").num_examples == 2


def of_python_2(array):
    """An array as NumPy wrote it under Python 2, which prints long numbers as 2L."""
    length = f"({len(array)}L,)" if array.ndim else "()"
    header = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {length}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + array.tobytes()


def test_a_matrix_that_python_2_wrote_is_read_without_a_warning(tmp_path):
    csr = {"format": b"csr", "shape": (2, 2), "indptr": [0, 1, 2], "indices": [0, 1], "data": [1.0, 2.0]}
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        for name, numbers in csr.items():
            archive.writestr(f"{name}.npy", of_python_2(np.array(numbers)))
    assert ingest(tmp_path / "m.npz", tmp_path / "data").num_examples == 2
