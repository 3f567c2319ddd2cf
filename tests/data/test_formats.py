"""Source formats: what each reads, and the sentence for everything that is wrong."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.mistakes import mistake
from widenet.data.dataset import Dataset
from widenet.data.formats import text
from widenet.data.formats.source import Reading
from widenet.data.formats.table import opened
from widenet.data.ingest import ingest
from widenet.errors import DataError


def test_a_format_is_known_by_suffix_or_content_or_name(tmp_path, source):
    def kind(path, **reading):
        return type(opened(path, Reading(**reading))).__name__

    write_pair(tmp_path / "d", "parquet", "a", "x")
    np.savez(tmp_path / "e", format=b"csr", shape=(1, 2), data=[1.0], indices=[1], indptr=[0, 1])
    assert kind(source("a.TSV", "user\titem\n")) == "Csv"
    for words in ("1 2 3\n2 9\n", "u1 3:1\n", "%%MatrixMarket\n"):
        with mistake(DataError, place="a.txt", option="format"):
            opened(source("a.txt", words))
    assert kind(source("b.txt", "user,item\n1,2\n")) == "Csv"
    assert kind(source("c.txt", "user,item\n1,2\n"), format="adjacency") == "Adjacency"
    assert (
        kind(source("c.txt", "1 2\n"), delimiter=" ")
        == kind(source("c.txt", "1 2\n"), has_header=False)
        == "Csv"
    )
    assert kind(tmp_path / "d") == "Parquet"
    assert kind((tmp_path / "e.npz").rename(tmp_path / "e")) == "NpzMatrix"
    assert (
        kind(source("f", '{"user": 1, "item": 2}\n'))
        == kind(source("g.ndjson.gz", '{"user": 1}\n'))
        == "JsonLines"
    )
    assert (
        kind(source("h", "1\t2,1112486027:29,1112484676:32,11"))
        == kind(source("i", "a b\tx,1\n"))
        == "Dsstne"
    )
    assert (
        kind(source("j.sessions", "1 2\n")) == kind(source("k.txt", "1 2\n"), format="sessions") == "Sessions"
    )
    zipped = source("a.csv.gz", gzip.compress(b"\xef\xbb\xbfuser,item\na,x\n"))
    assert ingest([zipped], tmp_path / "ds").num_examples == 1


def write_pair(path, suffix, user, item):
    if suffix == "parquet":
        pq.write_table(pa.table({"user": [user], "item": [item]}), path)
    else:
        path.write_text(f"user,item\n{user},{item}\n" if suffix == "csv" else f"{user} {item}\n")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "adj"])
@pytest.mark.parametrize(
    ("name", "beside"), [("data[1]", "data1"), ("data*", "data-all"), ("data?", "data2"), ("da[t]a", "data")]
)
def test_a_path_with_signs_of_a_pattern_means_that_file_alone(tmp_path, suffix, name, beside):
    write_pair(tmp_path / f"{name}.{suffix}", suffix, "right", "x")
    write_pair(tmp_path / f"{beside}.{suffix}", suffix, "wrong", "y")
    ingest([tmp_path / f"{name}.{suffix}"], tmp_path / "ds")
    assert Dataset.open(tmp_path / "ds").ids(slice(None)) == ["right"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "adj"])
def test_the_names_of_folders_are_no_columns_and_no_patterns(tmp_path, suffix):
    for folder, user in (("user=[5]", "right"), ("user=5", "wrong")):
        (tmp_path / folder).mkdir()
        write_pair(tmp_path / folder / f"r.{suffix}", suffix, user, "x")
    ingest([tmp_path / "user=[5]" / f"r.{suffix}"], tmp_path / "ds")
    assert Dataset.open(tmp_path / "ds").ids(slice(None)) == ["right"]


def test_quoted_and_spaced_headers_and_a_quoted_path_are_read(tmp_path, source):
    path = source("it's.csv", 'user,"it\'em ""x"""\na,b\n')
    assert ingest([path], tmp_path / "ds", item='it\'em "x"').num_examples == 1
    spaced = source("r.csv", "user; what \na;x\n")
    assert ingest([spaced], tmp_path / "spaced", item="what").vocabulary("items").ids([0]) == ["x"]


@pytest.mark.parametrize("name", ["s.sessions", "s.adj"])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path, source, name):
    ingest(source(name, b"\xef\xbb\xbfa b\nc a\n"), tmp_path / "ds")
    assert all(
        name in "abc" for name in Dataset.open(tmp_path / "ds").vocabulary("items").all_ids().to_pylist()
    )


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n\n\n\n"], ids=ascii)
@pytest.mark.parametrize("line", ["a", "abc", "abcdefgh"])
def test_the_last_line_may_have_so_many_bytes_and_no_more(tmp_path, monkeypatch, pack, end, line):
    monkeypatch.setattr(text, "_BLOCK_BYTES", 3)
    path = tmp_path / "a.csv"
    path.write_bytes(pack(f"the longest line\n12\r\n{line}{end}".encode()))
    text.TextFile(path).check_end(len(line))
    with mistake(DataError):
        text.TextFile(path).check_end(len(line) - 1)
