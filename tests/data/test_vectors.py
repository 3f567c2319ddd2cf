"""Vectors from text, .npy and Parquet files, and what is refused in them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widenet.data.vectors import read_vectors, source_of
from widenet.errors import DataError, FitError, OptionError

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\t1 2\nb\t1", "line 2: must have 2 numbers, as line 1 has; got 1. Fix the line."),
        ("a\t1 2\nb\t1 2 3", "line 2: must have 2 numbers, as line 1 has; got 3. Fix the line."),
        ("a\t1 2\nb\t1 two", "line 2: must hold numbers; got 'two'. Fix the line, or name other delimiters."),
        ("a\t1 2\nb\t1  2", "line 2: must have 2 numbers, as line 1 has; got 3. Fix the line."),
        (
            "a\t1 2\n\n",
            "line 2: must be KEY'\\t'NUMBER' 'NUMBER...; got ''. Fix the line, or name other delimiters.",
        ),
        (
            "a 1 2",
            (
                "line 1: must be KEY'\\t'NUMBER' 'NUMBER...; got 'a 1 2'. Fix the line, or name other"
                " delimiters."
            ),
        ),
    ],
)
def test_a_bad_line_is_named(text, message, written):
    path = written(".txt", text)
    with pytest.raises(DataError) as caught:
        read_vectors([path]).rows(0, 2)
    assert str(caught.value) == f"{path}: {message}"


def test_text_must_be_utf_8(tmp_path):
    (tmp_path / "latin.txt").write_bytes("ä\t1".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.txt: line 1: must be UTF-8 text\."):
        read_vectors([tmp_path / "latin.txt"])


def test_other_files_are_refused_in_a_sentence(tmp_path, written):
    def refused(path, kind=DataError):
        with pytest.raises(kind) as caught:
            read_vectors(path if isinstance(path, list) else [path])
        return str(caught.value)

    assert refused(tmp_path / "none.txt").endswith(
        "none.txt: must be a file of vectors that can be read; got: No such file or directory. Check the"
        " path."
    )
    assert "must hold at least one vector of at least one number; got 0 of 0." in refused(written(".txt", ""))
    (tmp_path / "text.npy").write_text("no array")
    assert "text.npy: must be a .npy file of numbers;" in refused(tmp_path / "text.npy")
    (tmp_path / "empty.npy").write_bytes(b"")
    assert "empty.npy: must be a .npy file of numbers;" in refused(tmp_path / "empty.npy")
    np.save(tmp_path / "cube.npy", np.zeros((2, 2, 2)))
    assert (
        "cube.npy: must be numbers of the shape [vectors, numbers of each]; got float64 [2, 2, 2]."
        in refused(tmp_path / "cube.npy")
    )
    pq.write_table(pa.table({"id": ["a"], "vector": [[1.0]]}), tmp_path / "id.parquet")
    assert (
        'id.parquet: must be a Parquet file with columns "key", texts, and "vector", lists of numbers;'
        in refused(tmp_path / "id.parquet")
    )
    pq.write_table(pa.table({"key": ["a", "b"], "vector": [[1.0], [1.0, 2.0]]}), tmp_path / "ragged.parquet")
    assert "ragged.parquet: every row must have a key, and as many numbers as the first one;" in refused(
        tmp_path / "ragged.parquet"
    )
    np.save(tmp_path / "wide.npy", np.zeros((2, 3)))
    message = (
        f"{tmp_path / 'wide.npy'}: vectors must have 2 numbers, as those of {tmp_path / 'vectors.npy'};"
        " got 3."
    )
    assert refused([written(".npy"), tmp_path / "wide.npy"], FitError) == message
    assert refused([], OptionError) == "name at least one file of vectors."
    with pytest.raises(OptionError, match="the delimiter of numbers must not be empty"):
        read_vectors([written(".txt")], "\t", "")
    with pytest.raises(OptionError, match="keys go with numbers in memory"):
        source_of(written(".txt"), ["x"])


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
    with pytest.raises(DataError, match=r"must be a \.npz file of numbers; .*encrypted"):
        read_vectors([path])
