"""Titles: read and guessed as sources are, or as options say."""

import csv
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
        ("t.dat", "1::One::x\n2::Two::y\n", {"titles_columns": ["id", "title", "kind"]}),
        ("t.txt", gzip.compress(b"id|title\n1|One\n2|Two\n", mtime=0), {}),
        ("t.dat", "what|called\n1|One\n2|Two\n", {"title_id": "what", "title": "called"}),
        ("t.csv", "0,One,1\n0,Two,2\n", {"titles_columns": ["kind", "title", "id"]}),
        ("t.jsonl", '{"id": "1", "title": "One"}\n{"id": "2", "title": "Two"}\n', {}),
    ],
)
def test_titles_are_read_as_sources_are(tmp_path, source, log, name, text, options):
    ingest(log, tmp_path / "ds", titles=source(name, text), **options)
    assert titles_of(tmp_path / "ds") == ["One", "Two"]


def test_an_item_has_one_title_in_however_many_rows(tmp_path, source, log):
    ingest(log, tmp_path / "ds", titles=source("same.csv", "id,title\n1,One\n2,Two\n1,One\n1,\n"))
    assert titles_of(tmp_path / "ds") == ["One", "Two"]
    with mistake(DataError, place="t.csv"):
        ingest(log, tmp_path / "no", titles=source("t.csv", "id,title\n1,One\n2,Two\n1,Uno\n"))


@pytest.mark.parametrize(
    ("text", "title_id", "titles"),
    [
        ("key,work,title\n7,2,Two\n2,1,One\n", None, ["One", "Two"]),
        ("id,work,title\n1,2,Two\n2,1,One\n", None, None),
        ("id,work,title\n1,2,Two\n2,1,One\n", "id", ["Two", "One"]),
        ("id,title\n1,One\n", None, None),
        ("id,title\n1,One\n", "id", ["One", "2"]),
        ("id,work,title\n1,7,One\n2,8,Two\n", "work", None),
    ],
)
def test_ids_are_in_the_named_column_or_in_the_only_one_that_holds_all(
    tmp_path, source, log, text, title_id, titles
):
    """`None` as titles stands for a refusal: two columns may be meant, or too few items are found."""
    given = {"titles": source("t.csv", text), "title_id": title_id}
    if titles is None:
        with mistake(DataError, place="t.csv", option="title_id"):
            ingest(log, tmp_path / "ds", **given)
        return
    ingest(log, tmp_path / "ds", **given)
    assert titles_of(tmp_path / "ds") == titles


def test_goodbooks_has_the_titles_of_the_column_that_all_items_are_in(tmp_path, real_data):
    folder = real_data / "goodbooks-10k"
    given = {"item": "book_id", "titles": folder / "books.csv"}
    dataset = ingest(folder / "to_read.csv", tmp_path / "ds", **given)
    books = {
        row["id"]: row["title"] for row in csv.DictReader((folder / "books.csv").read_text().splitlines())
    }
    names = dataset.vocabulary("items")
    assert all(books[name] == title for name, title in names.named(range(len(names))))
    with mistake(DataError, place="books.csv", column="book_id", option="title_id"):
        ingest(folder / "to_read.csv", tmp_path / "wrong", **given, title_id="book_id")
