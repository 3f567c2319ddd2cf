"""Titles: read and guessed as sources are, or as options say."""

import gzip

import pytest

from tests.mistakes import mistake
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.errors import DataError


@pytest.fixture
def log(source):
    return source("log.csv", "user,item\na,1\na,2\nb,1\n")


def titles_of(folder):
    return Dataset.open(folder).vocabulary("items").titles([0, 1])


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("t.csv", "id,title\n1,One\n2,Two\n", {}),
        ("t.dat", "1::One::x\n2::Two::y\n", {}),
        ("t.txt", gzip.compress(b"id|title\n1|One\n2|Two\n", mtime=0), {}),
        ("t.dat", "what|called\n1|One\n2|Two\n", {"title_id": "what", "title": "called"}),
        ("t.dat", "1~One\n2~Two\n", {"titles_delimiter": "~", "titles_format": "csv"}),
        ("t.csv", "0,One,1\n0,Two,2\n", {"titles_columns": ["kind", "title", "id"]}),
        ("t.csv", "title,id\n1,One\n2,Two\n", {"titles_header": False}),
        ("t.jsonl", '{"id": "1", "title": "One"}\n{"id": "2", "title": "Two"}\n', {}),
    ],
)
def test_titles_are_read_as_sources_are(tmp_path, source, log, name, text, options):
    ingest(log, tmp_path / "ds", titles=source(name, text), **options)
    assert titles_of(tmp_path / "ds") == ["One", "Two"]


def test_the_item_column_of_the_interactions_has_the_ids_of_titles_too(tmp_path, source):
    log = source("log.csv", "user,work\na,1\na,2\nb,1\n")
    ingest(log, tmp_path / "same", item="work", titles=source("t.csv", "key,work,title\n1,2,Two\n2,1,One\n"))
    assert titles_of(tmp_path / "same") == ["One", "Two"]
    both = source("both.csv", "id,work,title\n1,2,Two\n2,1,One\n")
    with mistake(DataError, place="both.csv", option="title_id"):
        ingest(log, tmp_path / "both", item="work", titles=both)
    ingest(log, tmp_path / "named", item="work", titles=both, title_id="id")
    assert titles_of(tmp_path / "named") == ["Two", "One"]
