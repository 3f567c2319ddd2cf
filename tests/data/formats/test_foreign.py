"""Files that are no text: each is named, whatever it is called, and texts are left alone."""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.mistakes import mistake
from widenet.data.formats.source import Reading
from widenet.data.formats.table import opened
from widenet.errors import DataError

TEXT = "".join(f"u{row},i{row * 7}\n" for row in range(400)).encode()
TABLE = pa.table({"user": ["a", "b"], "item": ["x", "y"]})


def written(write):
    """The bytes that a function writes into a file."""
    sink = io.BytesIO()
    write(sink)
    return sink.getvalue()


def arrow(sink):
    with pa.ipc.new_file(sink, TABLE.schema) as writer:
        writer.write_table(TABLE)


def zipped(sink):
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("ratings.csv", TEXT)


def tarred(sink):
    with tarfile.open(fileobj=sink, mode="w") as archive:
        member = tarfile.TarInfo("ratings.csv")
        member.size = len(TEXT)
        archive.addfile(member, io.BytesIO(TEXT))


FOREIGN = {
    "page": b"\n<!DOCTYPE html>\n<html><body>Sign in, please</body></html>\n",
    "plain page": b"<HTML lang='en'>\n<body>404</body>\n",
    "XHTML": b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- 1 -->\n<html>\n",
    "compressed page": gzip.compress(b"<html>\n"),
    "Arrow": written(arrow),
    "zip": written(zipped),
    "tar": written(tarred),
    "compressed tar": gzip.compress(written(tarred)),
    "twice compressed": gzip.compress(gzip.compress(TEXT)),
    "xz": lzma.compress(TEXT),
    "bzip2": bz2.compress(TEXT),
    "NumPy": written(lambda sink: np.save(sink, np.arange(300))),
    "UTF-16": TEXT.decode().encode("utf-16"),
    "UTF-16, big end first": b"\xfe\xff" + TEXT.decode().encode("utf-16-be"),
    "UTF-16 in gzip": gzip.compress("用户".encode("utf-16")),
    "UTF-32": "u,1\n".encode("utf-32"),
    "binary": b"\x01\0\xff\xfe" * 9,
}


@pytest.mark.parametrize("name", ["ratings", "ratings.csv"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_no_text_is_refused_by_what_it_looks_like(kind, name, source):
    path = source(name, FOREIGN[kind])
    with mistake(DataError, place=name):
        opened(path)


def test_a_parquet_file_called_csv_is_refused_with_its_format(tmp_path):
    path = tmp_path / "users.csv"
    pq.write_table(TABLE, path)
    with mistake(DataError, option="users_format"):
        opened(path, Reading(prefix="users_"))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("BZh91AY,x\nCDF,y\n", "Csv"),
        ("ARROW1 x y\n", "Adjacency"),
        ("<html,x\n", "Csv"),
        ("htmlia1 <html>\n", "Adjacency"),
        ("é" * 300 + "1 x\n", "Adjacency"),
        ("x" + "é" * 300 + "1 x\n", "Adjacency"),
        ("user,item\nu,café\n".encode("latin-1"), "Csv"),
    ],
)
def test_texts_are_read_as_before(content, kind, source):
    assert type(opened(source("a", content))).__name__ == kind
