"""Vectors from text, .npy and Parquet files, and what is refused in them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.mistakes import mistake
from widenet.data.vectors import read_vectors, source_of
from widenet.errors import DataError

NUMBERS = np.array([[1, -2.5], [3e-3, 4], [0, 6]], dtype=np.float32)


@pytest.fixture
def written(tmp_path):
    """Writes a file of some suffix with the numbers above and the keys a, b c, ä."""

    def write(suffix, text="a\t1 -2.5\nb c\t0.003 4 \nä\t0 6"):
        path = tmp_path / f"vectors{suffix}"
        if suffix == ".npy":
            np.save(path, NUMBERS)
        elif suffix == ".parquet":
            pq.write_table(
                pa.table({"key": ["a", "b c", "ä"], "vector": NUMBERS.astype(np.float64).tolist()}), path
            )
        else:
            path.write_bytes(text.encode())
        return path

    return write


@pytest.mark.parametrize("suffix", [".txt", ".npy", ".parquet"])
def test_every_file_gives_the_same_numbers_in_any_pieces(suffix, written):
    source = read_vectors([written(suffix)])
    assert (len(source), source.columns) == (3, 2)
    assert source.keys.to_pylist() == (["0", "1", "2"] if suffix == ".npy" else ["a", "b c", "ä"])
    for start, stop in [(0, 3), (1, 2), (2, 3), (1, 1)]:
        np.testing.assert_array_equal(source.rows(start, stop), NUMBERS[start:stop])


def test_files_come_one_after_the_other(written):
    source = read_vectors([written(".txt"), written(".npy"), written(".parquet")])
    assert (len(source), source.keys.to_pylist()[2:5]) == (9, ["ä", "0", "1"])
    np.testing.assert_array_equal(source.rows(2, 8), np.tile(NUMBERS, (3, 1))[2:8])
    assert [source.place(position).rpartition("/")[2] for position in (1, 3)] == [
        "vectors.txt: line 2",
        "vectors.npy: row 0",
    ]


def test_delimiters_may_be_others_and_lines_may_end_as_on_windows(written):
    source = read_vectors([written(".txt", "a|1,2\r\nb|3,4\r\n")], "|", ",")
    assert source.keys.to_pylist() == ["a", "b"]
    assert source.rows(0, 2).tolist() == [[1, 2], [3, 4]]


def test_numbers_in_memory_may_have_keys():
    source = source_of([[1], [2]], ["x", "y"])
    assert (source.keys.to_pylist(), source.rows(0, 2).tolist()) == (["x", "y"], [[1], [2]])


def test_an_array_that_python_2_wrote_is_read_without_a_warning(tmp_path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    array = np.arange(6, dtype="<f4").reshape(2, 3)
    path = tmp_path / "old.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + array.tobytes())
    assert read_vectors([path]).rows(0, 2).tolist() == array.tolist()


def test_an_encrypted_archive_is_refused_in_a_sentence(tmp_path):
    path = tmp_path / "vectors.npz"
    np.savez(path, vector=NUMBERS, key=np.array(["a", "b", "c"]))
    text = bytearray(path.read_bytes())
    entry = text.index(b"PK\x01\x02")
    while entry != -1:
        text[entry + 8] |= 1
        entry = text.find(b"PK\x01\x02", entry + 1)
    path.write_bytes(text)
    with mistake(DataError):
        read_vectors([path])
