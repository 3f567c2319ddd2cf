"""Sources: the same interactions give the same dataset, whatever they are written in and wherever they
come from.
"""

import gzip
import io
import json
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from tests.mistakes import mistake
from tests.scripts import Conversation
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.errors import DataError, OptionError

ROWS = [("0", "1", 2.5), ("0", "3", 1.0), ("1", "2", 4.0), ("2", "0", 3.0), ("2", "3", 0.5), ("2", "1", 2.5)]
CSV = "user,item,value\n" + "".join(f"{user},{item},{value}\n" for user, item, value in ROWS)
BARE = CSV.partition("\n")[2]
BY_USER = {user: [row for row in ROWS if row[0] == user] for user in ("0", "1", "2")}


NAMES = ["user", "item", "value"]


def frame():
    return {
        "user": [row[0] for row in ROWS],
        "item": [row[1] for row in ROWS],
        "value": [row[2] for row in ROWS],
    }


def matrix():
    numbers = [(int(user), int(item), value) for user, item, value in ROWS]
    users, items, values = zip(*numbers, strict=True)
    return scipy.sparse.coo_matrix((values, (users, items)), shape=(3, 5))


def zstd(text):
    stream = pa.BufferOutputStream()
    with pa.CompressedOutputStream(stream, "zstd") as file:
        file.write(text.encode())
    return stream.getvalue().to_pybytes()


def npz(form):
    stream = io.BytesIO()
    scipy.sparse.save_npz(stream, matrix().asformat(form))
    return stream.getvalue()


def parquet(_=None):
    stream = io.BytesIO()
    pq.write_table(pa.table(frame()), stream)
    return stream.getvalue()


JSON = "".join(
    json.dumps({"user": int(user), "item": item, "value": value, "other": None}) + "\n"
    for user, item, value in ROWS
)
LISTS = "".join(
    json.dumps({"user": user, "item": [r[1] for r in rows], "value": [r[2] for r in rows]}) + "\n"
    for user, rows in BY_USER.items()
)
DSSTNE = "".join(
    f"{user}\t" + ":".join(f"{item},{value}" for _, item, value in rows) + "\n"
    for user, rows in BY_USER.items()
)

FILES = {
    "a.tsv": (CSV.replace(",", "\t"), {}),
    "b.txt": (CSV.replace(",", ";"), {}),
    "c.dat": (BARE.replace(",", "::"), {"columns": ["user", "item", "value"]}),
    "d.csv": (BARE, {"columns": ["user", "item", "value"]}),
    "f.csv": (CSV.replace(",", "\x01"), {"delimiter": "\x01"}),
    "h.csv": (
        '"x"," user ",item,"value, or so"\n' + "".join(f'"a ""q""\n",{line}\n' for line in BARE.splitlines()),
        {"user": " user ", "value": "value, or so"},
    ),
    "i.csv": ("\ufeff" + "," + CSV.replace("\n", "\r\n7,").removesuffix("7,"), {}),
    "j.csv.gz": (
        gzip.compress(BARE[:20].encode(), mtime=0) + gzip.compress(BARE[20:].encode(), mtime=0),
        {"columns": ["user", "item", "value"]},
    ),
    "k.tsv.zst": (zstd(CSV.replace(",", "\t")), {}),
    "m.jsonl": (JSON, {}),
    "o": (LISTS, {}),
    "p.txt": (DSSTNE, {"format": "dsstne"}),
    "q.dsstne.zst": (zstd(DSSTNE), {}),
    "r.npz": (npz("csr"), {}),
    "t": (npz("coo"), {}),
    "u.parquet": (parquet(), {}),
}


@pytest.fixture(scope="module")
def digest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("csv")
    (folder / "r.csv").write_text(CSV)
    ingest([folder / "r.csv"], folder / "ds", value="value")
    return contents(folder / "ds")


def contents(folder):
    dataset = Dataset.open(folder)
    return dataset.digest, dataset.manifest.files["items.vocabulary.arrow"].sha256


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_dataset_of_the_csv(tmp_path, source, digest, name):
    text, options = FILES[name]
    ingest(str(source(name, text)), tmp_path / "ds", **{"value": "value"} | options)
    assert contents(tmp_path / "ds") == digest


TABLES = {
    "a dictionary": frame,
    "an open file": lambda: io.StringIO(CSV),
    "an open file of bytes": lambda: io.BytesIO(gzip.compress(CSV.encode())),
    "pandas": lambda: pd.DataFrame(frame()),
    "pandas numbers": lambda: pd.DataFrame(frame()).astype({"user": "int32", "item": "category"}),
    "polars": lambda: pl.DataFrame(frame()),
    "arrow": lambda: pa.table(frame()),
    "coo array": lambda: scipy.sparse.coo_array(matrix()),
}


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_of_table_gives_the_dataset_of_the_csv(tmp_path, digest, kind):
    ingest(TABLES[kind](), tmp_path / "ds", value="value")
    assert contents(tmp_path / "ds") == digest


def test_a_session_is_named_by_its_line_which_goes_on_in_the_next_file(tmp_path, source):
    first, second = source("a.txt", "x y\n\nx z\n"), source("b.txt", "y")
    ingest([first, second], tmp_path / "ds", format="sessions", heldout=source("c.txt", "w\n"))
    dataset = Dataset.open(tmp_path / "ds")
    assert dataset.ids(slice(None)) == ["1", "2", "3", "4"]
    assert dataset.entry_counts("items", slice(None)).tolist() == [2, 0, 2, 1]
    assert dataset.entry_counts("items", slice(None), "heldout").tolist() == [1, 0, 0, 0]


def test_files_patterns_and_tables_are_one_pile(tmp_path, source, digest):
    lines = BARE.splitlines(keepends=True)
    for number in range(4):
        source(f"part-{number}.csv", "user,item,value\n" + lines[number])
    rest = pd.DataFrame(frame())[4:]
    ingest([tmp_path / "part-*.csv", rest], tmp_path / "ds", value="value")
    assert contents(tmp_path / "ds") == digest


@pytest.mark.parametrize("given", [CSV.encode(), zstd(CSV), parquet()])
def test_standard_input_is_a_source(tmp_path, digest, given):
    process = Conversation(["data", "ingest", "-", "--value", "value", "--out", str(tmp_path / "ds")])
    process.stdin.buffer.write(given)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert err.startswith("reading standard input as ")
    assert contents(tmp_path / "ds") == digest
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == ["ds"]


def test_bad_lines_are_skipped_as_far_as_allowed(tmp_path, source, digest):
    lines = BARE.splitlines(keepends=True)
    bad = ['9,"quoted"x,1\n', "9,x\n", "9,x,five\n", ",x,1\n"]
    path = source("r.csv", "user,item,value\n" + "".join([bad[0], *lines[:3], *bad[1:], *lines[3:]]))
    manifest = ingest(path, tmp_path / "ds", value="value", skip_bad_lines=4).manifest
    assert manifest.source["train_lines_skipped"] == 4
    assert contents(tmp_path / "ds") == digest
    with mistake(DataError, place=path, line=2, option="skip_bad_lines"):
        ingest(path, tmp_path / "other", value="value", skip_bad_lines=3)


@pytest.mark.parametrize(
    ("name", "text", "bad"),
    [
        ("a.jsonl", JSON, ["{broken\n", '{"user": 1}\n']),
        ("b.jsonl", LISTS, ['{"user": 1, "item": [2], "value": []}\n', '{"user": 1, "item": 2}\n']),
        ("c.dsstne", DSSTNE, ["no tab\n", "x\ta,1:b,two\n"]),
        ("d.dat", BARE.replace(",", "::"), ["7::8\n", "7::8::nine\n"]),
    ],
)
def test_bad_lines_are_skipped_in_every_kind_of_text(tmp_path, source, digest, name, text, bad):
    lines = text.splitlines(keepends=True)
    path = source(name, zstd("".join([lines[0], bad[0], *lines[1:], bad[1]])))
    manifest = ingest(
        path, tmp_path / "ds", value="value", skip_bad_lines=2, columns=NAMES if name == "d.dat" else None
    ).manifest
    assert manifest.source["train_lines_skipped"] == 2
    assert contents(tmp_path / "ds") == digest


@pytest.mark.parametrize(
    ("option", "value"),
    [("decimal", ","), ("delimiter", ";"), ("columns", NAMES), ("skip_bad_lines", 1)],
)
def test_options_of_text_are_refused_where_nothing_is_text(option, value, tmp_path):
    (tmp_path / "a.parquet").write_bytes(parquet())
    for given in (tmp_path / "a.parquet", frame()):
        with mistake(OptionError, option=option):
            ingest(given, tmp_path / "data", **{option: value})
    assert not (tmp_path / "data").exists()
