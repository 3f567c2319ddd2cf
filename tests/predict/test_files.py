"""Files of recommendations: read back by other readers, whole or absent, the same bytes for any blocks."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.mistakes import mistake
from widenet.errors import DataError, OptionError
from widenet.predict import files
from widenet.predict.files import FORMATS, Block, open_results

USERS = ["ann", "bob", "none yet", "zoë"]
COUNTS = np.array([2, 3, 0, 1], dtype=np.int64)
ITEMS = ["i1", "i2", "i3", "i1", "i2", "i9"]
SCORES = np.array([0.9, 0.1, 1.0, 0.25, 1e-7, -2.5], dtype=np.float32)
ROWS = [
    ("ann", "i1", 0.9, 1),
    ("ann", "i2", 0.1, 2),
    ("bob", "i3", 1.0, 1),
    ("bob", "i1", 0.25, 2),
    ("bob", "i2", 1e-7, 3),
    ("zoë", "i9", -2.5, 1),
]


def write(path, users=USERS, counts=COUNTS, items=ITEMS, scores=SCORES, file_format=None, block=4):
    stops = np.concatenate([[0], np.cumsum(counts)])
    with open_results(path, file_format) as writer:
        for start in range(0, len(users), block):
            stop = min(start + block, len(users))
            entries = slice(stops[start], stops[stop])
            units = np.zeros(stops[stop] - stops[start], dtype=np.int64)
            writer.write(Block(users[start:stop], counts[start:stop], items[entries], scores[entries], units))
    return path


def test_parquet_holds_one_typed_row_for_each_recommendation(tmp_path):
    table = pq.read_table(write(tmp_path / "out.parquet"))
    assert table.schema == pa.schema(
        [("user", pa.string()), ("item", pa.string()), ("score", pa.float32()), ("rank", pa.int32())]
    )
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (user, item, np.float32(score), rank) for user, item, score, rank in ROWS
    ]


def test_csv_holds_one_row_for_each_recommendation_with_the_digits_of_float32(tmp_path):
    path = write(tmp_path / "out.csv")
    assert path.read_text("utf-8").splitlines()[:2] == ["user,item,score,rank", "ann,i1,0.9,1"]
    with path.open(newline="") as file:
        rows = [
            (row["user"], row["item"], np.float32(row["score"]), int(row["rank"]))
            for row in csv.DictReader(file)
        ]
    assert rows == [(user, item, np.float32(score), rank) for user, item, score, rank in ROWS]


def test_csv_gives_back_awkward_names(tmp_path):
    names = ["a,b", 'say "x"', "two\nlines", "carriage\rreturn", "", " spaced ", "tab\t", "'"]
    path = write(
        tmp_path / "out.csv", names, np.ones(8, dtype=np.int64), names[::-1], np.zeros(8, dtype=np.float32)
    )
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert [row[0] for row in rows] == names
    assert [row[1] for row in rows] == names[::-1]


def test_json_lines_hold_one_object_for_each_user_even_without_recommendations(tmp_path):
    lines = write(tmp_path / "out.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    assert (
        lines[0] == '{"user": "ann", "items": [{"item": "i1", "score": 0.9}, {"item": "i2", "score": 0.1}]}'
    )
    assert [line["user"] for line in found] == USERS
    assert found[2] == {"user": "none yet", "items": []}
    assert [np.float32(item["score"]) for line in found for item in line["items"]] == SCORES.tolist()


@pytest.mark.parametrize("extension", FORMATS)
def test_the_bytes_do_not_depend_on_blocks(tmp_path, extension, monkeypatch):
    monkeypatch.setattr(files, "ROW_GROUP", 4)
    whole = write(tmp_path / f"whole.{extension}").read_bytes()
    assert [write(tmp_path / f"cut{block}.{extension}", block=block).read_bytes() for block in (1, 2, 3)] == [
        whole
    ] * 3


@pytest.mark.parametrize("extension", FORMATS)
def test_an_error_leaves_no_file_and_nothing_beside_it(tmp_path, extension):
    path = tmp_path / f"out.{extension}"
    with pytest.raises(KeyboardInterrupt), open_results(path) as writer:  # noqa: PT012
        units = np.zeros(1, dtype=np.int64)
        writer.write(Block(["other"], np.array([1]), ["i"], np.array([0.5], dtype=np.float32), units))
        assert not path.exists()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_a_score_that_is_no_number_is_refused_with_its_user_and_item(tmp_path, score):
    scores = SCORES.copy()
    scores[3] = score
    with mistake(DataError, place="out.csv"):
        write(tmp_path / "out.csv", scores=scores)


@pytest.mark.parametrize(
    ("name", "file_format"),
    [
        ("out.xlsx", None),
        ("out", None),
        ("out.csv", "parqet"),
        ("mine.csv/out.csv", None),
        ("", "csv"),
        ("mine.csv", None),
        ("-", "csv"),
    ],
)
def test_a_path_or_format_that_cannot_be_written_is_refused(tmp_path, monkeypatch, name, file_format):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text("mine")
    with mistake(OptionError), open_results(Path(name), file_format):
        pass
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mine.csv", "mine")]


@pytest.mark.parametrize("extension", FORMATS)
def test_only_a_file_of_recommendations_is_replaced(tmp_path, extension):
    path = tmp_path / f"out.{extension}"
    before = write(path).read_bytes()
    with open_results(path, overwrite=True):  # no users
        assert path.read_bytes() == before
    assert path.read_bytes() != before
    with open_results(path, overwrite=True):
        pass
    table = pa.table({"user": ["a"], "item": ["b"]})
    for mine in (b"user,item\na,b\n", b'{"user": "a"}\n', b"a\tb\n", b"PAR1", table):
        if isinstance(mine, bytes):
            path.write_bytes(mine)
        else:
            pq.write_table(mine, path)
        before = path.read_bytes()
        with pytest.raises(OptionError), open_results(path, overwrite=True):
            pass
        assert path.read_bytes() == before
