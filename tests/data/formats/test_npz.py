"""Matrices in .npz files: the types of their numbers, and indices that are refused."""

import numpy as np
import pytest

from tests.data.test_sources import npz
from tests.mistakes import mistake
from widenet.data.ingest import ingest
from widenet.errors import DataError


@pytest.mark.parametrize(
    "arrays",
    [
        {"format": b"coo", "row": [10**13], "col": [0]},
        {"format": b"coo", "row": [0], "col": [2]},
        {"format": b"csc", "indices": [2], "indptr": [0, 1, 1]},
        {"format": b"csr", "indices": [-7], "indptr": [0, 1, 1]},
        {"format": b"csr", "indices": [0.5], "indptr": [0, 1, 1]},
    ],
)
def test_a_matrix_of_indices_beyond_its_shape_is_refused(tmp_path, arrays):
    np.savez(tmp_path / "m.npz", shape=(2, 2), data=[1.0], **arrays)
    with mistake(DataError, place="m.npz"):
        ingest(tmp_path / "m.npz", tmp_path / "ds")


@pytest.mark.parametrize("kind", ["complex128", "U4", "M8[s]", [("a", "f4")], "longdouble"])
def test_a_matrix_of_other_than_numbers_is_refused(kind, tmp_path):
    values = np.zeros(2, kind)
    np.savez(tmp_path / "m.npz", format=b"csr", shape=(2, 2), indptr=[0, 1, 2], indices=[0, 1], data=values)
    with mistake(DataError, place="m.npz"):
        ingest(tmp_path / "m.npz", tmp_path / "ds")


@pytest.mark.parametrize("kind", [">f8", ">i4", "float16", "bool"])
def test_a_matrix_may_hold_numbers_of_any_type(kind, tmp_path):
    arrays = {
        "indptr": np.array([0, 1, 2], ">i4"),
        "indices": np.array([0, 1], ">i4"),
        "data": np.ones(2, kind),
    }
    np.savez(tmp_path / "m.npz", format=b"csr", shape=(2, 2), **arrays)
    assert ingest(tmp_path / "m.npz", tmp_path / "data").num_examples == 2


def test_an_unknown_compression_and_a_pickled_array_are_refused(tmp_path):
    content = bytearray(npz("csr"))
    for magic, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        start = -1
        while (start := content.find(magic, start + 1)) >= 0:
            content[start + place : start + place + 2] = b"\x63\x00"
    (tmp_path / "a.npz").write_bytes(content)
    pickled = np.array([print], dtype=object)
    np.savez(tmp_path / "b.npz", format=b"csr", shape=(1, 1), data=pickled, indices=[0], indptr=[0, 1])
    for name in ("a.npz", "b.npz"):
        with mistake(DataError, place=name):
            ingest(tmp_path / name, tmp_path / "ds")
