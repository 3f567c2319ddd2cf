"""CSV: decimal commas are read where that is said; bad lines are skipped, whatever ends lines."""

import io

import pandas as pd
import pytest

from tests.mistakes import mistake
from widenet.data.dataset import Dataset
from widenet.data.formats.csv import guessed_delimiter
from widenet.data.ingest import ingest
from widenet.errors import DataError

RATINGS = "{}u1;a;3,5;10,5\nu1;a;1,25;10,25\nu2;b;-2;7\nu2;a;,5;1e1\n"
USERS = "id;age;counts\nu1;0,25;1,5\nu2;-3;2\n"
OPTIONS = {"dense": {"profile": ["age"]}, "weight": "counts"}


def digest(folder, header, decimal):
    """The digest of the dataset of these ratings and users, written with one decimal sign or the other."""
    folder.mkdir()
    for name, text in (("ratings.csv", RATINGS.format(header)), ("users.csv", USERS)):
        (folder / name).write_text(text if decimal == "," else text.replace(",", "."))
    columns = (
        {"user": "user", "item": "item", "value": "rating", "time": "at"}
        if header
        else {"value": "3", "time": "4"}
    )
    said = {"decimal": decimal, "users_decimal": decimal}
    ingest(folder / "ratings.csv", folder / "data", users=folder / "users.csv", **columns, **OPTIONS, **said)
    return Dataset.open(folder / "data").digest


@pytest.mark.parametrize("header", ["user;item;rating;at\n", ""], ids=["named", "unnamed"])
def test_numbers_times_and_users_with_decimal_commas_are_those_with_points(header, tmp_path):
    assert digest(tmp_path / "commas", header, ",") == digest(tmp_path / "points", header, None)


def test_the_delimiter_is_rather_another_sign_than_that_of_decimals():
    assert guessed_delimiter(["u1;0,5;1,5\n"], ",") == ";"
    assert guessed_delimiter(['u1,"0,5"\n'], ",") == ","


@pytest.mark.parametrize("delimiter", ["||", "|~|"])
def test_a_delimiter_may_have_several_signs(delimiter, tmp_path):
    rows = [["user", "item", "note"], ["u1", "a", ""], ["u2", "b", "12:30"]]
    (tmp_path / "likes.csv").write_text("".join(delimiter.join(row) + "\n" for row in rows))
    likes = tmp_path / "likes.csv"
    data = ingest(likes, tmp_path / "data", user="user", item="item", delimiter=delimiter)
    assert data.vocabulary("items").all_ids().to_pylist() == ["a", "b"]


GOOD = ['u1,"two{end}lines",1', "u2,x,2.5", 'u1,"quo,""ted",-3', "u3,x,4"]
BAD = {
    "no user": ",x,1",
    "no item": "u1,,1",
    "no value": "u1,x,",
    "no number": "u1,x,five",
    "a column less": "u1,x",
    "a column more": "u1,x,1,1",
    "open quotes": 'u1,"x,1',
    "a line end in quotes": '"u9{end}{end}u9",,1',
    "not UTF-8": "u1,\xff,1",
}


@pytest.fixture(scope="module", params=["\n", "\r\n"], ids=["LF", "CRLF"])
def truth(request, tmp_path_factory):
    """A line end, and the dataset of the good lines as pandas reads them."""
    lines = [line.format(end=request.param) for line in GOOD]
    frame = pd.read_csv(io.StringIO("\n".join(lines)), names=["user", "item", "value"], lineterminator="\n")
    dataset = ingest(frame, tmp_path_factory.mktemp("truth") / "ds", value="value")
    assert f"two{request.param}lines" in dataset.vocabulary("items").all_ids().to_pylist()
    return request.param, dataset


@pytest.mark.parametrize("bad", BAD)
def test_a_file_without_its_bad_lines_is_as_pandas_reads_the_good_ones(tmp_path, truth, bad):
    end, expected = truth
    good, bad_line = [line.format(end=end) for line in GOOD], BAD[bad].format(end=end)
    for header, place, is_ended in ((True, 0, True), (True, 2, False), (True, 4, False), (False, 4, True)):
        lines = [*["user,item,value"][: int(header)], *good[:place], bad_line, *good[place:]]
        path = tmp_path / "a.csv"
        path.write_bytes((end.join(lines) + end * is_ended).encode("latin-1"))
        columns = {} if header else {"columns": ["user", "item", "value"]}
        dataset = ingest(
            path, tmp_path / f"{place}{header}", value="value", skip_bad_lines=3, threads=1, **columns
        )
        assert dataset.digest == expected.digest
        assert dataset.vocabulary("items").all_ids() == expected.vocabulary("items").all_ids()
        assert dataset.manifest.source["train_lines_skipped"] == 1 + bad_line.count(end)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.csv", "us\ufffder,item\nu1,caf\ufffd\nu1,a\nu2,\n"),
        (
            "r.jsonl",
            '{"user": "u1", "item": "caf\ufffd"}\n{"user": "u1", "item": "a"}\n{"user": "b"}\n',
        ),
        ("r.dsstne", "us\ufffder\tcaf\ufffd:a\nu2 a\n"),
    ],
)
def test_a_character_for_what_was_not_text_is_text_in_names_and_cells(name, text, tmp_path):
    (tmp_path / name).write_bytes(text.encode())
    named = {"user": "us\ufffder"} if name == "r.csv" else {}
    ingest(tmp_path / name, tmp_path / "data", skip_bad_lines=1, **named)
    assert Dataset.open(tmp_path / "data").vocabulary("items").all_ids().to_pylist() == ["a", "caf\ufffd"]
    (tmp_path / name).write_bytes(text.encode().replace("\ufffd".encode(), b"\xff"))
    with mistake(DataError, line=1):
        ingest(tmp_path / name, tmp_path / "other")
