"""Mistakes in sources and options: each is an error of its class, at its place, about its option."""

import gzip
import io
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.mistakes import mistake
from widenet.data.extreme import ingest_extreme
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.data.rules import FieldLayout
from widenet.data.split import split
from widenet.data.vectors import read_vectors
from widenet.errors import DataError, FitError, OptionError

R = "user,item,rating\n"
NANO = {"time": "t", "time_format": "%Y-%m-%d %S.%n"}
RATING = {"value": "rating"}
JSON = '{"user": 1, "item": 2, "value": 3}\n'
USERS = "id,country,tag,age,income,counts\na,at,x,20,1,2\nb,de,y,30,-2,1\nc,fr,,40,3,1\n"


def parquet(**columns):
    """The bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def npz(data, width):
    """The bytes of a matrix in a .npz file."""
    sink = io.BytesIO()
    shape = np.array([2, width])
    np.savez(
        sink, format=b"csr", data=data, indices=np.array([0, 1]), indptr=np.array([0, 1, 2]), shape=shape
    )
    return sink.getvalue()


ROWS = "user,item\n" + "".join(f"u{row},{row * 7 % 13}\n" for row in range(5000))
GZIP = gzip.compress(ROWS.encode(), mtime=0)
TABLE = parquet(user=["a", "b"], item=["1", "2"], rating=[1.0, float("nan")])
"""Parquet's statistics leave NaN out."""


def facts(place=None, line=None, column=None, option=None):
    return {"place": place, "line": line, "column": column, "option": option}


@pytest.mark.parametrize(
    ("name", "content", "options", "at"),
    [
        ("r.csv", R + "a,x,1\n" * 3 + "a,y,five\n", RATING, facts(line=5, column="rating")),
        ("r.csv", R + "a,x,1\na,y,\n", RATING, facts(line=3, column="rating")),
        ("r.csv", R + "a,x,1\n,y,2\n", {}, facts(line=3, column="user")),
        ("r.csv", R + 'a,x,1\nb,"",2\n', {}, facts(line=3, column="item")),
        ("r.csv", R + 'a,"x\ny",1\nb,y\n', {}, facts(line=4)),
        ("r.csv", R + "a,x,1\nb,y,z,2\n", {}, facts(line=3)),
        ("r.csv", R + 'a,x,1\nb,"y,2\nc,z,3\n', {}, facts(line=3, option="quote")),
        ("r.csv", R.encode() + b"a,\xff,1\n", {}, facts(line=2)),
        ("r.csv", "User,user,item\n1,a,x\n", {}, facts(column="User")),
        ("r.csv", "\na,b\n", {}, facts(line=1)),
        ("r.csv", "", {}, facts()),
        ("r.adj", "<!DOCTYPE html>\n<html><body>Not found</body></html>\n", {}, facts()),
        ("r.csv", R + "a,x,1\n", {"time": "rating", "min_value": 1}, facts(option="time")),
        ("r.csv", "user,item,day\na,x,2024-05-01T12:00:00\na,y,May\n", {"time": "day"}, facts(line=3)),
        ("r.csv", "user,item,day\na,x,2024-05-01\na,y,20240502\n", {"time": "day"}, facts(column="day")),
        ("r.csv", "user,item,t\na,x,2024-05-01T00:30:00.0000009\n", {"time": "t"}, facts(line=2, column="t")),
        ("r.csv", "user,item,t\na,x,2024-05-01 0.0000009\n", NANO, facts(line=2, column="t")),
        ("r.csv", "user,item,t\na,x,1714521600123456790\n", {"time": "t"}, facts(line=2, column="t")),
        ("r.csv", "user,item,ts\na,x,5e200\na,y,nan\n", {"time": "ts"}, facts(line=3, column="ts")),
        ("r.csv", R + "a,x,1\na,y,2\n", RATING | {"min_value": 3}, facts(option="min_value")),
        ("r.csv", "1,2\n", {"columns": ["user", "item", "value"]}, facts(line=1)),
        ("r.csv", "user;item;value\na;b;x\n", {"value": "value"}, facts(line=2, column="value")),
        ("a.adj", b"1 2\n2 \xff\n", {}, facts(line=2)),
        ("a.adj", "1 2\n", RATING, facts(column="rating", option="value")),
        ("a.sessions", b"x\n\xff\n", {}, facts(line=2)),
        ("a.sessions", "x\n", RATING, facts(option="value")),
        ("a.jsonl", JSON * 6 + "{broken\n", {}, facts(line=7)),
        ("a.jsonl", JSON * 6 + '{"user": 1, "value": 2}\n', {}, facts(line=7, column="item")),
        ("a.jsonl", JSON * 200 + '{"user": 1, "item": [2]}\n', {}, facts(line=201)),
        ("a.jsonl", '{"user": [1], "item": [2]}\n', {}, facts(column="user")),
        ("a.jsonl", JSON * 6 + '{"user": 1, "item": {"id": "x"}}\n', {}, facts(line=7)),
        ("a.jsonl", "1\n2\n", {}, facts()),
        ("a.jsonl", '{"user": 1, "item": [2, 3], "value": [1]}\n', {"value": "value"}, facts(line=1)),
        ("a.json", '[["u", "i"], 7]', {}, facts()),
        ("a.dsstne", "a\tx,1\nb x\n", {}, facts(line=2)),
        ("a.dsstne", "a\tx,1:,2\n", {}, facts(line=1, column="item")),
        ("a.dsstne", "a\tx,1:y\n", {"value": "value"}, facts(line=1, column="value")),
        ("a.csv", "user,item\nu1,a\0b\n", {}, facts(line=2)),
        ("a.csv", "user,item\nu1,1\n".encode("utf-16-le"), {}, facts(line=1)),
        (
            "a.csv",
            R + "a,x,one\nb,x,two\nc,x,1\n",
            RATING | {"skip_bad_lines": 1},
            facts(line=2, column="rating"),
        ),
        ("a.csv", "user,item\nu1,1\n", {"user": "usr"}, facts(option="user")),
        ("a.csv.gz", GZIP[:-8] + bytes(4) + GZIP[-4:], {}, facts()),
        ("a.csv.zst", b"\x28\xb5\x2f\xfdnothing at all", {}, facts()),
        ("a.jsonl", '{"user":"u","item":' + "[" * 100_000 + "]" * 100_000 + "}\n", {}, facts(line=1)),
        ("a.jsonl", '{"user":"\\ud800","item":1}\n', {}, facts()),
        ("a.adj", "\n\n", {}, facts()),
        ("a", "%%MatrixMarket matrix\n1 1 1\n", {}, facts()),
        ("a.npz", "PK no archive", {}, facts()),
        ("a.npz", npz(np.array([1, np.nan]), 2), {"value": "value"}, facts()),
        ("r.parquet", b"PAR1 and then nothing", {}, facts()),
        ("r.parquet", TABLE[:4] + bytes(40) + TABLE[44:], {}, facts()),
        ("r.parquet", TABLE, RATING, facts()),
    ],
)
def test_a_wrong_source_is_refused_at_its_place(tmp_path, source, name, content, options, at):
    with mistake(DataError, **facts(place=name) | {key: fact for key, fact in at.items() if fact}):
        ingest([source(name, content)], tmp_path / "ds", **options)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("form", ["Parquet", "table"])
def test_a_wrong_table_is_refused_by_its_row(tmp_path, form):
    table = pa.table({"user": ["a", "b", None], "item": [1, 2, 3], "rating": ["1", "x", "2"]})
    path = tmp_path / "r[1].parquet"
    pq.write_table(table, path)
    pq.write_table(table.slice(0, 1), tmp_path / "r1.parquet")
    given = path if form == "Parquet" else table
    with mistake(DataError, place="row 2", column="rating"):
        ingest([given], tmp_path / "ds", value="rating")
    with mistake(DataError, place="row 3", column="user"):
        ingest([given], tmp_path / "ds")


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"user": [1, "a"], "item": [1, 2]}),
        {"user": [1, 1, 2], "item": ["a", "b"]},
        {"user": ["u"], "item": [[["a", "b"]]]},
        pd.DataFrame([[1, 2, 3]], columns=["user", "item", "item"]),
        {"user": [1.0, np.nan], "item": [1, 2]},
        {"user": [1.0, np.inf], "item": [1, 2]},
    ],
    ids=str,
)
def test_other_python_is_refused(tmp_path, given):
    with mistake(DataError, place="the table"):
        ingest(given, tmp_path / "ds")


def test_a_path_that_is_no_new_file_is_refused(tmp_path, source):
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("none.csv", "folder.csv", "pipe.csv", "none-*.csv"):
        with mistake(DataError, place=name):
            ingest([tmp_path / name], tmp_path / "ds")
    (tmp_path / "ds").mkdir()
    with mistake(DataError, option="overwrite"):
        ingest([source("r.csv", R + "a,x,1\n")], tmp_path / "ds")


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"keep_values": True}, "keep_values"),
        ({"skip_bad_lines": -1}, "skip_bad_lines"),
        ({"delimiter": '"'}, "delimiter"),
        ({"memory": "lots"}, "memory"),
        ({"threads": 0}, "threads"),
        ({"min_value": float("nan")}, "min_value"),
        ({"format": "cvs"}, "format"),
        ({"decimal": ";"}, "decimal"),
        ({"quote": "##"}, "quote"),
        ({"duplicates": "last"}, "time"),
        ({"since": "2024-05-01"}, "time"),
        ({"heldout_last": 1}, "time"),
        ({"since": "May", "time": "time"}, "since"),
        ({"since": 3, "until": 3, "time": "time"}, "since"),
        ({"since": "2024-05-01", "until": "1672531200", "time": "time"}, "since"),
        ({"heldout_since": 1, "validation_since": 2, "time": "time"}, "validation_since"),
        ({"heldout_since": "30d", "validation_since": "30 days", "time": "time"}, "validation_since"),
        ({"min_user_items": -1}, "min_user_items"),
        ({"validation_last": 0, "sequence": True}, "validation_last"),
        ({"validation_last": 1, "validation_since": 1, "time": "time"}, "validation_last"),
        ({"heldout": "x.csv", "heldout_since": 1, "time": "time"}, "heldout"),
        ({"time": "at", "time_format": "%q"}, "time_format"),
        ({"time_format": "%d/%m/%Y"}, "time_format"),
        ({"dense": {"x": ["age"]}}, "dense"),
        ({"sparse": {"items": "shop"}}, "sparse"),
        ({"sparse": {"a": "shop"}, "dense": {"a": ["day"]}, "users": "u.csv"}, "dense"),
        ({"weight": "w"}, "weight"),
        ({"users": "u.csv"}, "users"),
        ({"users_columns": ["id"]}, "users_columns"),
        ({"items_id": "x"}, "items_id"),
        ({"items": "i.csv", "titles": "t.csv", "items_title": "x"}, "items_title"),
        ({"title_id": "x"}, "title_id"),
    ],
)
def test_a_wrong_option_of_ingest_is_refused(tmp_path, source, options, option):
    path = source("r.csv", "user,item,value,time,shop,day\na,x,5,1,north,20\n")
    with mistake(OptionError, option=option):
        ingest([path], tmp_path / "ds", **options)


@pytest.mark.parametrize("sources", [[], [3], [(1, "a")], (np.zeros(2), np.zeros(2)), ["-", "-"]], ids=str)
def test_what_is_no_source_is_refused(tmp_path, sources, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"user,item\na,x\n")))
    with mistake(OptionError):
        ingest(sources, tmp_path / "ds")


@pytest.mark.parametrize(
    ("text", "options", "column"),
    [
        (USERS, {"dense": {"x": ["agee"]}}, "agee"),
        (USERS, {"users_id": "country", "weight": "counts"}, "country"),
        (USERS, {"dense": {"x": ["country"]}}, "country"),
        (USERS, {"weight": "income"}, "income"),
        (USERS.replace("20,1", "0;5,1"), {"dense": {"x": ["age"]}}, "age"),
        (USERS + "b,at,1,1,1,1\n", {"weight": "counts"}, None),
        ("id,country\na,\nb,\nc,\n", {"sparse": {"x": "country"}}, "country"),
        ("id,country\na\n", {"sparse": {"x": "country"}}, None),
    ],
)
def test_a_wrong_file_of_users_is_refused(tmp_path, source, text, options, column):
    log = source("log.csv", "user,item\na,x\nb,y\nc,x\n")
    with mistake(DataError, column=column):
        ingest(log, tmp_path / "ds", users=source("users.csv", text), **options)


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("i.csv", "id,g\n1,a\n2,b\n1,b\n", "id"),
        ("i.csv", "id,g\n,a\n1,b\n", "id"),
        ("i.csv", "id,g\n77,a\n", "id"),
        ("i.jsonl", '{"id": 1, "g": {"a": 1}}\n', "g"),
        ("i.jsonl", '{"id": 1, "g": ["a"]}\n{"id": 2, "g": [["b"], "c"]}\n', "g"),
        ("absent.csv", None, None),
    ],
)
def test_a_wrong_file_of_items_is_refused(tmp_path, source, name, text, column):
    path = tmp_path / name if text is None else source(name, text)
    with mistake(DataError, place=name, column=column):
        ingest(source("log.csv", "user,item\na,1\nb,2\n"), tmp_path / "ds", items=path)
    assert not (tmp_path / "ds").exists()


def test_titles_that_name_no_item_are_refused(tmp_path, source):
    interactions = source("r.csv", "user,item\na,x\n")
    books = source("books.csv", "isbn,id,title\nx,1,One\n")
    with mistake(DataError, place="books.csv", column="id", option="title_id"):
        ingest(interactions, tmp_path / "ds", titles=books, title_id="id")
    with mistake(OptionError, place="[rb]*.csv"):
        ingest(interactions, tmp_path / "ds", titles=tmp_path / "[rb]*.csv")


NAN = float("nan")


@pytest.mark.parametrize(
    ("lists", "place"),
    [
        ({"items": [[0], [-1, 2]]}, "items"),
        ({"heldout": [[0], [-1]]}, "items.heldout"),
        ({"heldout": [[1]]}, "items.heldout"),
        ({"sparse": {"tags": [[-1], []]}}, "tags"),
        ({"items": [[0], [1]], "width": 1}, "items"),
        ({"items": [[0, 0], [1]]}, "items"),
        ({"items": [[0], "12"]}, "items"),
        ({"items": [[0], ["1"]]}, "items"),
        ({"items": [[0], [1.5]]}, "items"),
        ({"items": [0, 1]}, "items"),
        ({"values": [[1, 1], ["x"]]}, "items.value"),
        ({"values": [[1, NAN], [1]]}, "items"),
        ({"values": [[1, 1e39], [1]]}, "items"),
        ({"dense": {"age": [[1, 2], [3]]}}, "age"),
        ({"dense": {"age": [[], []]}}, "age"),
        ({"dense": {"age": [1, 2]}}, "age"),
        ({"dense": {"age": [["x"], ["y"]]}}, "age"),
        ({"dense": {"age": [[1], [NAN]]}}, "age"),
        ({"dense": {"items": [[0.5], [1]]}}, "items"),
        ({"weights": [1, -1]}, "weight"),
        ({"weights": [1, NAN]}, "weight"),
        ({"weights": [1, "x"]}, "weight"),
        ({"ids": ["a", "a"]}, "ids"),
        ({"ids": [1, 2]}, "ids"),
        ({"item_ids": ["x", "y", "x"]}, "item_ids"),
        ({"width": 3, "item_ids": ["x"]}, "features"),
    ],
)
def test_what_is_no_list_of_the_kind_is_refused(tmp_path, lists, place):
    with mistake(DataError) as caught:
        dataset_from_lists(tmp_path / "ds", **{"items": [[0, 2], [1]]} | lists)
    assert place in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("2 4 3\n1 0:1\n", 1),
        ("1 4 3\n1 0:1\n1 0:1\n", 1),
        ("1 4 3\n1 0:one\n", 2),
        ("2 4 3\n1 0:1\n1,3 0:1\n", 3),
        ("2 4 3\n 0:1\n1 0:1 4:1\n", 3),
        ("1 4 3\n0 0:1e99\n", None),
        ("1 4 3\n 0:1\n", None),
    ],
)
def test_a_wrong_file_of_extreme_classification_is_refused(tmp_path, text, line):
    (tmp_path / "train.txt").write_text(text)
    with mistake(DataError, line=line):
        ingest_extreme(tmp_path / "train.txt", tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["train.txt"]


@pytest.mark.parametrize(
    ("options", "kind", "option"),
    [
        ({}, OptionError, None),
        ({"heldout": 1.0}, OptionError, "heldout"),
        ({"validation": -0.1}, OptionError, "validation"),
        ({"heldout": 0.5, "validation": 0.5}, OptionError, None),
        ({"heldout": 0.1, "seed": -1}, OptionError, "seed"),
        ({"heldout": 0.1, "seed": 2**63}, OptionError, "seed"),
        ({"heldout": 0.5, "field": "age"}, DataError, None),
        ({"validation": 0.1}, DataError, "validation"),
        ({"heldout": 0.1, "validation": 0.5}, DataError, "heldout"),
        ({"heldout": 0.75, "validation": 0.2}, DataError, "validation"),
    ],
)
def test_a_wrong_split_is_refused(tmp_path, options, kind, option):
    few = dataset_from_lists(tmp_path / "few", [[0, 1, 2, 3], [1], []], dense={"age": [[1.0], [2.0], [3.0]]})
    with mistake(kind, option=option):
        split(few, tmp_path / "ds", **options)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("v.txt", "a\t1 2\nb\t1", 2),
        ("v.txt", "a\t1 2\nb\t1 2 3", 2),
        ("v.txt", "a\t1 2\nb\t1 two", 2),
        ("v.txt", "a\t1 2\n\n", 2),
        ("v.txt", "a 1 2", 1),
        ("v.txt", "ä\t1".encode("latin-1"), 1),
        ("v.txt", "", None),
        ("none.txt", None, None),
        ("text.npy", "no array", None),
        ("empty.npy", "", None),
        ("cube.npy", np.zeros((2, 2, 2)), None),
        ("id.parquet", pa.table({"id": ["a"], "vector": [[1.0]]}), None),
        ("ragged.parquet", pa.table({"key": ["a", "b"], "vector": [[1.0], [1.0, 2.0]]}), None),
    ],
)
def test_a_wrong_file_of_vectors_is_refused(tmp_path, source, name, content, line):
    write = source
    path = tmp_path / name
    if isinstance(content, np.ndarray):
        np.save(path, content)
    elif isinstance(content, pa.Table):
        pq.write_table(content, path)
    elif content is not None:
        write(name, content)
    with mistake(DataError, place=name, line=line):
        source = read_vectors([path])
        source.rows(0, len(source))


def test_vectors_of_several_files_have_one_length(tmp_path):
    for name, width in (("a.npy", 2), ("b.npy", 3)):
        np.save(tmp_path / name, np.zeros((2, width)))
    with mistake(FitError, place="b.npy"):
        read_vectors([tmp_path / "a.npy", tmp_path / "b.npy"])
    with mistake(OptionError):
        read_vectors([])


WRONG_NAMES = ["", "a\nb", "a/b", "../esc", "id", "x.value", "x.heldout", ".x", "examples-x", "x" * 101]


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a_field_name_that_cannot_be_a_column_and_a_file_is_refused(tmp_path, source, name):
    interactions = source("r.csv", "user,item\na,x\n")
    for make in (
        lambda: ingest([interactions], tmp_path / "out" / "ds", field=name),
        lambda: dataset_from_lists(tmp_path / "out" / "ds", [[0]], field=name),
        lambda: dataset_from_lists(tmp_path / "out" / "ds", [[0]], sparse={name: [[0]]}),
        lambda: dataset_from_lists(tmp_path / "out" / "ds", [[0]], dense={name: [[0]]}),
    ):
        with mistake(DataError):
            make()
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]
    assert list(dataset_from_lists(tmp_path / "ds", [[0]], field="été 2.b").fields) == ["été 2.b"]


@pytest.mark.parametrize("width", [0, 2**32 + 1])
def test_a_width_that_no_index_has_is_refused(width):
    with mistake(DataError, place="x"):
        FieldLayout("x", width)
