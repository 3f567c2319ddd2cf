"""Tables of every format: a wrong one is refused with place, rule and value."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.data.test_sources import JSON, LISTS, npz
from widenet.data.ingest import ingest
from widenet.errors import DataError


def unknown_compression():
    """A zip archive whose members name a method of compression that nobody knows."""
    content = bytearray(npz("csr"))
    for magic, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        start = -1
        while (start := content.find(magic, start + 1)) >= 0:
            content[start + place : start + place + 2] = b"\x63\x00"
    return bytes(content)


def refused(tmp_path, given, **options):
    with pytest.raises(DataError) as raised:
        ingest(given, tmp_path / "ds", **options)
    return str(raised.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.jsonl",
            JSON + "{broken\n",
            "a.jsonl: line 7: must be a JSON object; at character 2, names and texts must stand",
        ),
        (
            "a.jsonl",
            "[1, 2]\n",
            "a.jsonl: object 1: must be a JSON object with a user and an item; got 1. Convert the file.",
        ),
        (
            "a.jsonl",
            "1\n2\n",
            (
                "a.jsonl: line 1: must be a JSON object, one a line. Convert the file, for example with `jq"
                " -c '.[]'`."
            ),
        ),
        ("a.jsonl", JSON + "[1]\n", "a.jsonl: line 7: must be a JSON object. Fix or remove the line."),
        (
            "a.jsonl",
            JSON + '{"user": 1, "value": 2}\n',
            'a.jsonl: line 7: column "item" must not be empty.'
            " Fix or remove the row, or skip it with `skip_bad_lines`.",
        ),
        (
            "a.jsonl",
            JSON + '{"user": 1, "item": [2]}\n',
            'a.jsonl: line 7: "item" must be one value, as in the first lines.',
        ),
        (
            "a.jsonl",
            LISTS + '{"user": 1, "item": [2], "value": []}\n',
            "a.jsonl: line 4: the lists item, value must have the same length.",
        ),
        (
            "a.dsstne",
            "a\tx,1\nb x\n",
            "a.dsstne: line 2: must be a name, a tab and features; it has no tab. Fix or remove the line.",
        ),
        (
            "a.dsstne",
            "a\tx,1:,2\n",
            'a.dsstne: line 1: column "item" must not be empty.'
            " Fix or remove the row, or skip it with `skip_bad_lines`.",
        ),
        (
            "a.dsstne",
            "a\tx,1:y\n",
            'a.dsstne: line 1: column "value" must be a number; the cell is empty.'
            " Fix or remove the row, or skip it with `skip_bad_lines`.",
        ),
        (
            "a.sessions",
            b"x\n\xff\n",
            'a.sessions: column "value" does not exist; it has user, item. Choose with `value`.',
        ),
        (
            "a.csv",
            "user;item;value\na;b;x\n",
            'a.csv: line 2: column "value" must be a number; got "x". Fix or remove the row.',
        ),
        (
            "a.npz",
            unknown_compression(),
            "a.npz: must hold a sparse matrix that scipy.sparse.save_npz wrote, in CSR, CSC or COO form; ",
        ),
        (
            "a.npz",
            "PK no archive",
            "a.npz: must hold a sparse matrix that scipy.sparse.save_npz wrote, in CSR, CSC or COO form; ",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_place_rule_and_value(tmp_path, source, name, text, message):
    assert refused(tmp_path, source(name, text), value="value").startswith(message)


def test_a_session_that_is_no_text_is_refused(tmp_path, source):
    assert refused(tmp_path, source("a.sessions", b"x\n\xff\n")).startswith(
        "a.sessions: line 2: must be UTF-8 text."
    )


def test_a_pickled_array_is_not_loaded(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        format=b"csr",
        shape=(1, 1),
        data=np.array([print], dtype=object),
        indices=[0],
        indptr=[0, 1],
    )
    assert "allow_pickle=False" in refused(tmp_path, tmp_path / "a.npz")


def test_a_wrong_table_is_refused_by_its_row(tmp_path):
    table = pa.table({"user": ["a", "b", None], "item": [1, 2, 3], "rating": ["1", "x", "2"]})
    assert (
        refused(tmp_path, table, value="rating")
        == 'the table: row 2: column "rating" must be a number; got "x". Fix or remove the row.'
    )
    assert (
        refused(tmp_path, [table])
        == 'the table: row 3: column "user" must not be empty. Fix or remove the row.'
    )
    assert refused(tmp_path, pd.DataFrame({"user": [1, "a"], "item": [1, 2]})).startswith(
        "the table: every column must be of one type"
    )
    assert refused(tmp_path, (np.zeros(2), np.zeros(3))).startswith(
        "the table: arrays must be users, items, and perhaps values and times"
    )


def test_a_header_is_not_taken_for_data_nor_data_for_a_header(tmp_path, source):
    assert (
        refused(tmp_path, source("a.csv", "alice,matrix\nbob,matrix\n"))
        == "a.csv: no column is obviously the user; it has alice, matrix. Name one with `user`, or use"
        " `header=False` if line 1 is data."
    )
    assert (
        ingest(source("b.csv", "alice,matrix\nbob,matrix\n"), tmp_path / "b", header=False).num_examples == 2
    )
    assert ingest(source("c.csv", "user,item,2024\na,x,1\n"), tmp_path / "c").num_examples == 1
    expected = "d.csv: line 1: must have the columns user, item, value; got 2. Correct `columns`."
    assert refused(tmp_path, source("d.csv", "1,2\n"), columns=["user", "item", "value"]) == expected
