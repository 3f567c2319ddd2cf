"""Vectors from text, .npy and Parquet files, and what is refused in them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.mistakes import mistake
from widenet.data.vectors import read_vectors
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


def test_numbers_of_text_are_digits_with_sign_point_and_exponent_rounded_once(written):
    source = read_vectors([written(".txt", "a\t16777217.0000001 -.5 1e-3 +2\n")])
    assert source.rows(0, 1).tolist() == [[16777218.0, -0.5, float(np.float32(0.001)), 2.0]]
    for text in ("1_000", "0x1", "\u0663", " ", ""):
        with mistake(DataError, line=1):
            read_vectors([written(".txt", f"a\t{text}\n")])
