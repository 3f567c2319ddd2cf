"""Readers: what each format holds, what decides where it could mean two things, and every kind of cell."""

import gzip
import io
import json
import random
from datetime import UTC, datetime

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from tests.mistakes import mistake
from widenet.data import columns
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.manifest import WHOLE_NUMBERS
from widenet.data.read import matching_paths
from widenet.errors import DataError

NAMES = ["user", "item", "value"]


def items_of(dataset):
    return dataset.vocabulary("items").all_ids().to_pylist()


def pairs_of(dataset):
    """{user: its items}, sorted."""
    names, counts = dataset.vocabulary("items"), dataset.entry_counts("items", slice(None))
    found = names.ids(dataset.sparse("items", slice(None)).indices.numpy())
    ends = np.cumsum(counts)
    users = dataset.ids(slice(None))
    return {user: sorted(found[end - n : end]) for user, end, n in zip(users, ends, counts, strict=True)}


# What a file holds: by its suffix, its first bytes, its header or an option, and never by a guess.


@pytest.mark.parametrize(
    ("name", "text", "options", "option"),
    [
        ("a.txt", "1 2 3\n2 9\n", {}, "format"),
        ("a.txt", "u1 3:1\n", {}, "format"),
        ("a.mtx", "%%MatrixMarket\n", {}, "format"),
        ("a.txt", "1:\n5,3\n", {}, "format"),
        ("a.csv", "1,2\n3,4\n", {}, "columns"),
        ("a.csv", "a,b\nc,d\n", {}, "columns"),
        ("a.tsv", "1\t2,1:3,2\n", {}, "columns"),
        ("a.csv", "user,price\na,1\n", {}, "item"),
        ("a.csv", "user,item\na,b\n", {"item": "itm"}, "item"),
        ("a.csv", "user,user_id,item\n1,2,3\n", {}, "user"),
        ("a.csv", "user,item,asin\n1,2,3\n", {}, "item"),
        ("a.csv", "| user | item |\n| 1 | 2 |\n", {}, "columns"),
        ("a.csv", "user,item\na,b\n", {"columns": ["user", "item"]}, "header"),
        ("a.csv", "user_id,item_id\na,b\n", {"columns": ["user", "item"]}, "header"),
        ("a.csv", "1,2\na,b\n", {"user": "1", "item": "2"}, "header"),
        ("a.txt", "a;b,c\nd;e,f\n", {"columns": ["user", "item"]}, "delimiter"),
        ("a.txt", "a b\nc d\n", {"columns": ["user", "item"]}, "delimiter"),
        ("a.csv", "user,item\na,b\n#c,d\n", {}, "comment"),
        ("a.csv", "user,item\na,b\n% c,d\n", {}, "comment"),
        ("a.adj", "# user items\n1 2\n", {}, "comment"),
        ("a.adj", "1: 5 7\n", {}, "delimiter"),
        ("a.adj", "1 5:3.5 7:4\n", {}, "delimiter"),
        ("a.adj", "1 5 2005-05-20 7 2005-06-01\n", {}, "delimiter"),
        ("a.adj", "1 5,7\n", {}, "delimiter"),
        ("a.adj", "1 5 964982703 7 1664981247\n2 5 964982703\n", {}, "delimiter"),
        ("a.sessions", "5 3.5 7 4.0\n", {}, "delimiter"),
        ("a.csv", "user,item\nu,a\nu,a|b\n", {}, "item_separator"),
        ("a.csv", "user,item\nu,\"['a', 'b']\"\n", {}, "item_separator"),
        ("a.jsonl", '{"user": 1, "item": 2, "item": 3}\n', {}, None),
        ("a.csv", "user,item,event\nu,a,buy\n", {"where": {"evnt": ["buy"]}}, "where"),
        ("a.jsonl", '{"user": "u", "item": ["a", "b"]}\n', {"where": {"item": ["a"]}}, "where"),
        ("a.sessions", "5,7\n", {}, "delimiter"),
        ("a.csv", 'user,item,n\nu1,"a,1\nu2,b,1\nu3,c",1\n', {}, "quote"),
        ("a.csv", 'user,item,n\nu1,"a,1\n\nu2,b,1\nu3,c",1\n', {}, "quote"),
        ("a.csv", 'user,item,n\nu1,a,1\nu2,"b,1\nu3,c,1\n', {}, "quote"),
        ("a.csv", 'user,item,n\nu1,a,1\nu2,"b,1\nu3,c,1\n', {"skip_bad_lines": 3}, "quote"),
        ("a.csv", 'user,item,n\nu1,a,1\nu2,"b,1\nu3,c,1\n', {"skip_bad_lines": 3, "quote": '"'}, "quote"),
    ],
)
def test_what_could_mean_two_things_is_refused_and_names_the_option(
    tmp_path, source, name, text, options, option
):
    with mistake(DataError, place=name, option=option):
        ingest(source(name, text), tmp_path / "ds", **options)
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize(
    ("name", "text", "options", "pairs"),
    [
        ("a.csv", "1,2\n3,4\n", {"columns": ["user", "item"]}, {"1": ["2"], "3": ["4"]}),
        ("a.csv", "1,2\n3,4\n", {"columns": ["x", "y"], "user": "y", "item": "x"}, {"2": ["1"], "4": ["3"]}),
        ("a.csv", "who,what\na,b\n", {"user": "who", "item": "what"}, {"a": ["b"]}),
        ("a.csv", "1,2\na,b\n", {"user": "1", "item": "2", "header": True}, {"a": ["b"]}),
        ("a.csv", "1,2\na,b\n", {"user": "1", "item": "2", "header": False}, {"1": ["2"], "a": ["b"]}),
        ("a.csv", "x,y\na,b\n", {"columns": ["user", "item"], "header": True}, {"a": ["b"]}),
        ("a.txt", "a;b,c\n", {"columns": ["user", "item"], "delimiter": ";"}, {"a": ["b,c"]}),
        ("a.csv", "# from a shop\nuser,item\na,b\n#c,d\n# one, two, three\n", {"comment": "#"}, {"a": ["b"]}),
        ("a.csv", "user,item\n#c,d#\n", {"comment": ""}, {"#c": ["d#"]}),
        ("a.adj", "# users\n1 2#3 #4\n", {"comment": "#"}, {"1": ["#4", "2#3"]}),
        ("a.adj", "1, 5, 7\n", {"delimiter": ","}, {"1": ["5", "7"]}),
        ("a.adj", "1 spotify:a\n", {"delimiter": "space"}, {"1": ["spotify:a"]}),
        ("a.sessions", "5,7\n\n9\n", {"delimiter": ","}, {"1": ["5", "7"], "2": [], "3": ["9"]}),
        ("a.csv", 'user,item,n\nu1,"a,1\nu3,c",1\n', {"quote": ""}, {"u1": ['"a'], "u3": ['c"']}),
        ("a.csv", 'user,item,n\nu1,"a,1\nu2,b,1\nu3,c",1\n', {"quote": '"'}, {"u1": ["a,1\nu2,b,1\nu3,c"]}),
        ("a.csv", 'user,item\nu1,"a\nb"\n', {}, {"u1": ["a\nb"]}),
        ("a.csv", "user,item\nu1,'a,b'\n", {"quote": "'"}, {"u1": ["a,b"]}),
        ("a.csv", 'user,item\nu1,"a\\"b"\n', {"escape": "\\"}, {"u1": ['a"b']}),
        ("a.csv", 'user,item\nu1,5" disk\n', {}, {"u1": ['5" disk']}),
        ("a.csv", "user,item\nu,a|b\nv,\n", {"item_separator": "|"}, {"u": ["a", "b"], "v": []}),
        ("a.csv", "user,item\nu,a|b\n", {"item_separator": ""}, {"u": ["a|b"]}),
        ("a.jsonl", '{"user": "u", "item": "a|b"}\n', {"item_separator": "|"}, {"u": ["a", "b"]}),
        ("a.json", '[{"user": "u", "item": ["a", "b"]}]', {"item_separator": "|"}, {"u": ["a", "b"]}),
        ("a.tsv", "u\ta b  c\n", {"item_separator": " ", "columns": NAMES[:2]}, {"u": ["a", "b", "c"]}),
        ("a.dsstne", "u\ta,1:b,2\nv\t\n", {}, {"u": ["a", "b"], "v": []}),
        ("a.csv", "price,Client ID,product-id\n5,u,a\n6,v,b\n", {}, {"u": ["a"], "v": ["b"]}),
    ],
)  # fmt: skip
def test_an_option_decides(tmp_path, source, name, text, options, pairs):
    assert pairs_of(ingest(source(name, text), tmp_path / "ds", **options)) == pairs


def test_conditions_keep_the_rows_whose_texts_are_equal(tmp_path, source):
    rows = [("u", "a", "1"), ("u", "b", "20"), ("v", "c", "3"), ("w", "d", "2"), ("w", "d", "")]
    table = source("a.csv", "user,item,n\n" + "".join(f"{user},{item},{n}\n" for user, item, n in rows))
    lines = "".join(f'{{"user": "{user}", "item": "{item}", "n": {n or "null"}}}\n' for user, item, n in rows)
    for number, given in enumerate((table, source("a.jsonl", lines))):
        found = ingest(given, tmp_path / f"{number}", where={"n": ["1", "3"], "user": "v"})
        assert pairs_of(found) == {"v": ["c"]}
        assert pairs_of(ingest(given, tmp_path / f"{number} n", where={"n": "2"})) == {"w": ["d"]}


@pytest.mark.parametrize("second", ["item,user_id\nb,2\n", "item_id,user_id,user\nb,2,3\n"])
def test_sources_have_the_same_columns(tmp_path, source, second):
    first = source("a.csv", "item_id,user_id\na,1\n")
    for options in (
        {"sources": [first, source("b.csv", second)]},
        {"sources": [first], "heldout": tmp_path / "b.csv"},
    ):
        with mistake(DataError, place="b.csv"):
            ingest(out=tmp_path / "ds", **options)
    swapped = source("c.csv", "user_id,item_id\n2,b\n")
    assert pairs_of(ingest([first, swapped], tmp_path / "ds")) == {"1": ["a"], "2": ["b"]}


def test_numbers_in_names_order_the_pieces_of_a_pattern(tmp_path, source):
    for number in (10, 9, 1):
        source(f"part-{number}.csv", f"user,item\nu,i{number}\n")
    found = [path.name for path in matching_paths(tmp_path / "part-*.csv")]
    assert found == ["part-1.csv", "part-9.csv", "part-10.csv"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(("name", "beside"), [("data*", "data-all"), ("user=[5]/r", "user=5/r")])
def test_a_path_with_signs_of_a_pattern_means_that_file_alone(tmp_path, suffix, name, beside):
    for path, user in ((name, "right"), (beside, "wrong")):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        frame = pd.DataFrame({"user": [user], "item": ["x"]})
        if suffix == "parquet":
            frame.to_parquet(tmp_path / f"{path}.parquet")
        else:
            frame.to_csv(tmp_path / f"{path}.csv", index=False)
    ingest([tmp_path / f"{name}.{suffix}"], tmp_path / "ds")
    assert Dataset.open(tmp_path / "ds").ids(slice(None)) == ["right"]


# Texts: compression, ends of lines, and lines that are left out.

ENDS = ["\n", "\r\n", "\r"]
LINES = {
    "a.csv": ["user,item", *(f"u{row % 7},{row}" for row in range(60)), 'u1,"quo,ted"'],
    "a.tsv": ["user\titem", *(f"u{row % 7}\t{row}" for row in range(60))],
    "a.adj": [f"u{row} {row % 5} {row % 3 + 7}" for row in range(60)],
    "a.sessions": [f"{row % 5} {row % 3 + 7}" for row in range(60)],
    "a.dsstne": [f"u{row}\t{row % 5},1:{row % 3 + 7},2" for row in range(60)],
    "a.jsonl": [f'{{"user": "u{row}", "item": {row % 5}}}' for row in range(60)],
}


@pytest.mark.parametrize("name", LINES)
def test_lines_may_end_in_several_ways(tmp_path, source, name):
    lines = LINES[name]
    expected = ingest(source(name, "\n".join(lines) + "\n"), tmp_path / "even").digest
    draw = random.Random(3)
    for case, ends in enumerate((ENDS, ["\r"])):
        mixed = "".join(line + draw.choice(ends) for line in lines).encode()
        assert ingest(source(name, mixed), tmp_path / f"{case}").digest == expected


def test_zeros_after_a_gzip_stream_are_padding(tmp_path, source):
    packed = gzip.compress(b"user,item\na,b\n", mtime=0) + gzip.compress(b"c,d\n", mtime=0)
    for number, text in enumerate((packed + bytes(512), b"\xef\xbb\xbfuser,item\na,b\nc,d\n")):
        path = source(f"{number}.csv", text)
        assert pairs_of(ingest(path, tmp_path / str(number))) == {"a": ["b"], "c": ["d"]}
    for wrong in (packed[:-5], packed + b"text"):
        with mistake(DataError, place="w.csv"):
            ingest(source("w.csv", wrong), tmp_path / "wrong")


def test_a_bad_line_has_the_number_that_an_editor_shows(tmp_path, source):
    path = source("a.csv", "user,item\r\nu1,a\ru2,b\nu3\nu4,d\r\n")
    with mistake(DataError, line=4, place="a.csv"):
        ingest([path], tmp_path / "ds")
    assert ingest([path], tmp_path / "ds", skip_bad_lines=1).ids(slice(None)) == ["u1", "u2", "u4"]


def test_a_last_line_that_duckdb_would_skip_is_refused(tmp_path, source):
    for name, size in (("a.csv", 9_000_000), ("a.adj", 35_000_000)):
        with mistake(DataError, place=name):
            ingest(source(name, b"user,item\nu,a\nv," + b"b" * size), tmp_path / "ds", delimiter=",")
    with (tmp_path / "endless.csv").open("wb") as file:
        file.write(b"user,item\n")
        file.truncate(2**40)
    with mistake(DataError, place="endless.csv", line=2):
        ingest(tmp_path / "endless.csv", tmp_path / "ds")


GOOD = ['u1,"two{end}lines",1', "u2,x,2.5", 'u1,"quo,""ted",-3', "u3,x,4"]
BAD = {
    "no user": ",x,1",
    "no item": "u1,,1",
    "no value": "u1,x,",
    "no number": "u1,x,five",
    "a digit less sure": "u1,x,1_000",
    "a column less": "u1,x",
    "a column more": "u1,x,1,1",
    "text after quotes": 'u1,"x"y,1',
    "a line end in quotes": '"u9{end}{end}u9",,1',
    "not UTF-8": "u1,\xff,1",
}


@pytest.fixture(scope="module", params=["\n", "\r\n"], ids=["LF", "CRLF"])
def truth(request, tmp_path_factory):
    """A line end, and the dataset of the good lines as pandas reads them."""
    lines = [line.format(end=request.param) for line in GOOD]
    frame = pd.read_csv(io.StringIO("\n".join(lines)), names=NAMES, lineterminator="\n")
    dataset = ingest(frame, tmp_path_factory.mktemp("truth") / "ds", value="value")
    assert f"two{request.param}lines" in items_of(dataset)
    return request.param, dataset


@pytest.mark.parametrize("bad", BAD)
def test_a_file_without_its_bad_lines_is_as_pandas_reads_the_good_ones(tmp_path, truth, bad):
    end, expected = truth
    good, bad_line = [line.format(end=end) for line in GOOD], BAD[bad].format(end=end)
    for header, place, is_ended in ((True, 0, True), (False, 4, False)):
        lines = [*["user,item,value"][: int(header)], *good[:place], bad_line, *good[place:]]
        path = tmp_path / "a.csv"
        path.write_bytes((end.join(lines) + end * is_ended).encode("latin-1"))
        options = {"value": "value", "threads": 1} | ({} if header else {"columns": NAMES})
        with mistake(DataError, place="a.csv", line=header + place + 1 + (place > 0)):
            ingest(path, tmp_path / f"{place}{header}", **options)
        dataset = ingest(path, tmp_path / f"{place}{header}", skip_bad_lines=1, **options)
        assert dataset.digest == expected.digest
        assert items_of(dataset) == items_of(expected)
        assert dataset.manifest.source["train_lines_skipped"] == 1


def test_a_character_for_what_was_not_text_is_text_in_names_and_cells(tmp_path):
    text, path = "us\ufffder,item\nu1,caf\ufffd\nu1,a\nu2,\n", tmp_path / "r.csv"
    path.write_bytes(text.encode())
    dataset = ingest(path, tmp_path / "data", skip_bad_lines=1, user="us\ufffder")
    assert items_of(dataset) == ["a", "caf\ufffd"]
    path.write_bytes(text.encode().replace("\ufffd".encode(), b"\xff"))
    with mistake(DataError):
        ingest(path, tmp_path / "other", user="us\ufffder")


# JSON: lines and arrays, keys that hold lists.

OBJECTS = [
    {"user": f"u{row % 5}", "item": 'é\n"[,]{}' if row == 3 else row, "rating": row / 2, "tags": [{"a": 1}]}
    for row in range(20)
]


def json_lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def test_an_array_is_read_as_its_objects(tmp_path, source):
    expected = ingest(source("a.jsonl", json_lines(*OBJECTS)), tmp_path / "lines", value="rating").digest
    spread, close = json.dumps(OBJECTS, indent=1), json.dumps(OBJECTS, separators=(",", ":"))
    contents = {
        "a": b"\xef\xbb\xbf \r\n" + spread.replace("\n", "\r\n").encode(),
        "b.json.gz": gzip.compress(close.encode()),
    }
    for name, content in contents.items():
        assert ingest(source(name, content), tmp_path / f"{name}-ds", value="rating").digest == expected


@pytest.mark.parametrize(
    "text", ['[{"user":1,"item":2},', '[{"user":1,"item":2}', '[{"user":1,"item":2}]\n[{"user":1,"item":3}]']
)
def test_an_array_that_is_cut_off_or_followed_by_another_is_refused(tmp_path, source, text):
    with mistake(DataError, place="a.json"):
        ingest(source("a.json", text), tmp_path / "ds")


def test_lists_are_rows_and_the_other_keys_may_hold_anything(tmp_path, source):
    rows = [
        {"user": 1, "items": ["a", "b"], "tags": ["p"]},
        {"user": 2, "items": "c", "tags": 5},
        {"user": 3, "items": []},
    ]
    for number, text in enumerate((json_lines(*rows), json.dumps(rows))):
        dataset = ingest(source("a.json", text), tmp_path / str(number), item="items")
        assert pairs_of(dataset) == {"1": ["a", "b"], "2": ["c"], "3": []}


def test_a_long_first_line_and_one_with_a_line_separator_are_whole(tmp_path, source):
    path = source("a.jsonl", json_lines({"user": "u", "items": [f"{number}" for number in range(20_000)]}))
    assert ingest(path, tmp_path / "a", item="items").fields["items"].width == 20_000
    dataset = ingest(source("b.jsonl", json_lines({"user": "u", "item": "x\u2028y"})), tmp_path / "b")
    assert items_of(dataset) == ["x\u2028y"]


# Tables in memory, and matrices.


@pytest.mark.parametrize("as_parquet", [False, True])
def test_ids_that_became_floats_are_whole_numbers(tmp_path, as_parquet):
    table = pd.DataFrame({"user": [1.0, 20.0, 3e15], "item": [1.5, 2.0, -7.0]})
    if as_parquet:
        table.to_parquet(tmp_path / "a.parquet")
    dataset = ingest(
        tmp_path / "a.parquet" if as_parquet else table,
        tmp_path / "ds",
        sparse={"group": "group"},
        titles={"id": [2.0, -7.0, 1.5], "title": ["two", "minus seven", None]},
        users={"id": [1.0, 20.0, 3e15], "age": [0, 3, 0], "group": [1.0, np.nan, 2.0]},
        dense={"a": ["age"]},
    )
    assert dataset.ids(slice(None)) == ["1", "20", "3000000000000000"]
    assert items_of(dataset) == ["-7", "1.5", "2"]
    assert dataset.vocabulary("group").all_ids().to_pylist() == ["1", "2"]
    assert dataset.dense("a", slice(None))[:, 0].tolist() == [0.0, 3.0, 0.0]
    assert dataset.manifest.source["items_with_title"] == 2


def test_whole_numbers_in_categories_stay_whole_numbers(tmp_path):
    table = pd.DataFrame({"user": [1, 2, 2], "item": pd.Series([1032, 7, 1032]).astype("category")})
    assert ingest(table, tmp_path / "ds").manifest.source[WHOLE_NUMBERS] == ["items"]


@pytest.mark.parametrize("form", ["coo", "csc", "dok", "file"])
def test_repeated_entries_of_a_matrix_add_up_in_every_form(tmp_path, form):
    matrix = scipy.sparse.coo_matrix(([1.0, 2.0, 4.0], ([0, 0, 2], [1, 1, 0])), shape=(3, 2))
    scipy.sparse.save_npz(tmp_path / "m.npz", matrix)
    given = tmp_path / "m.npz" if form == "file" else matrix.copy().asformat(form)
    dataset = ingest(given, tmp_path / "ds", value="value")
    assert dataset.sparse("items", slice(None)).values.tolist() == [3.0, 4.0]
    assert dataset.entry_counts("items", slice(None)).tolist() == [1, 0, 1]
    assert matrix.nnz == 3


@pytest.mark.parametrize(
    "arrays",
    [
        {"format": b"coo", "row": [10**13], "col": [0]},
        {"format": b"coo", "row": [0], "col": [2]},
        {"format": b"csc", "indices": [2], "indptr": [0, 1, 1]},
        {"format": b"csr", "indices": [-7], "indptr": [0, 1, 1]},
        *(
            {"format": kind, "indices": [0, 1], "indptr": [0, 50_000, 2], "data": [1.0, 2.0]}
            for kind in (b"csr", b"csc")
        ),
        {"format": b"csr", "indices": [0], "indptr": [0, 1, 1], "data": np.array([print])},
        *(
            {"format": b"csr", "indices": [0], "indptr": [0, 1, 1], "data": np.zeros(1, kind)}
            for kind in ("c16", "U4")
        ),
    ],
)
def test_a_wrong_matrix_is_refused(tmp_path, arrays):
    np.savez(tmp_path / "m.npz", shape=(2, 2), **{"data": [1.0]} | arrays)
    with mistake(DataError, place="m.npz"):
        ingest(tmp_path / "m.npz", tmp_path / "ds", value="value")


@pytest.mark.parametrize("kind", [">f8", ">i4", "float16", "bool"])
def test_a_matrix_may_hold_numbers_of_any_type(kind, tmp_path):
    indices, indptr = np.array([0, 1], ">i4"), np.array([0, 1, 2], ">i4")
    np.savez(
        tmp_path / "m.npz", format=b"csr", shape=(2, 2), indices=indices, indptr=indptr, data=np.ones(2, kind)
    )
    dataset = ingest(tmp_path / "m.npz", tmp_path / "data", value="value")
    assert dataset.sparse("items", slice(None)).values.tolist() == [1.0, 1.0]


# Cells: numbers and times.

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC).timestamp()
TIMES = {
    "2024-05-01T12:00:00": None,
    "2024-05-01T12:00:00Z": None,
    "2024-05-01 12:00:00 UTC": None,
    "2024-05-01T14:00:00+02:00": None,
    "2024-05-01 14:00:00+0200": None,
    "2024-05-01 07:00:00-05": None,
    "2024-05-01T17:30+05:30": None,
    "2024/05/01 12:00:00": None,
    "1714564800": None,
    "01/05/2024 12:00": "%d/%m/%Y %H:%M",
    "5/1/2024 12:00 PM": "%m/%d/%Y %I:%M %p",
    "May 1, 2024 12h": "%b %d, %Y %Hh",
    "01.05.2024 14:00 +0200": "%d.%m.%Y %H:%M %z",
}


DATABASE = duckdb.connect(config={"threads": 1})
DATABASE.execute("SET TimeZone = 'Asia/Tokyo'")


def in_sql(expression, cell):
    return DATABASE.execute(f"SELECT {expression} FROM (SELECT ? AS cell)", [cell]).fetchone()[0]


@pytest.mark.parametrize("cell", TIMES)
def test_a_time_is_seconds_of_utc(cell):
    assert in_sql(columns.seconds("cell", ".", TIMES[cell]), cell) == NOON


@pytest.mark.parametrize(
    "cell", ["infinity", "-Infinity", " epoch", "", "31/12/24x", "44-03-15 (BC)", "1_000"]
)
def test_words_and_other_formats_are_no_times(cell):
    for time_format in (None, "%d/%m/%y"):
        assert in_sql(columns.seconds("cell", ".", time_format), cell) is None


@pytest.mark.parametrize(
    "cell",
    ["1_000", "0x10", "nan", "inf", "-infinity", "1e39", "\uff11\uff12", "\u0663", "1,5", "--1", "1e", ""],
)
def test_only_digits_with_a_sign_a_point_and_an_exponent_are_a_number(cell):
    assert in_sql(columns.number("cell"), cell) is None


def test_a_number_is_rounded_to_float32_once():
    draw = random.Random(1)
    for _ in range(300):
        middle = np.float32(draw.uniform(0.5, 100))
        after = np.nextafter(middle, np.float32(200))
        exact = (int(float(middle) * 2**60) + int(float(after) * 2**60)) // 2
        digits = f"{exact * 5**60}".rjust(80, "0")
        half = f"{digits[:-60]}.{digits[-60:]}"
        for text, rounded in ((f"{half}1", after), (f"-{half}1", -after)):
            assert np.float32(in_sql(columns.number("cell"), text)) == rounded
    assert in_sql(columns.number("cell"), "0.1") == 0.1
    assert in_sql(columns.number("cell", ","), "-3,5e0") == -3.5


RATINGS = "user;item;rating;at\nu1;a;3,5;10,5\nu1;a;1,25;10,25\nu2;b;-2;7\nu2;a;,5;1e1\n"
USERS = "id;age;counts\nu1;0,25;1,5\nu2;-3;2\n"


def test_numbers_times_and_users_with_decimal_commas_are_those_with_points(tmp_path):
    digests = []
    for decimal in (",", "."):
        (folder := tmp_path / str(ord(decimal))).mkdir()
        for name, text in (("ratings.csv", RATINGS), ("users.csv", USERS)):
            (folder / name).write_text(text.replace(",", decimal))
        said = {"decimal": decimal, "value": "rating", "time": "at"}
        fields = {"users": folder / "users.csv", "dense": {"profile": ["age"]}, "weight": "counts"}
        digests.append(ingest(folder / "ratings.csv", folder / "data", **said, **fields).digest)
    assert digests[0] == digests[1]


def test_times_of_another_format_need_it(tmp_path, source):
    path = source("a.csv", "user,item,rating,at\nu,a,1,02.01.2024\nu,a,2,31.12.2023\n")
    dataset = ingest(path, tmp_path / "right", value="rating", time="at", time_format="%d.%m.%Y")
    assert dataset.sparse("items", slice(None)).values.tolist() == [1.0]
    with mistake(DataError, line=2, column="at", option="time_format"):
        ingest(path, tmp_path / "ds", time="at", time_format="%d/%m/%Y")


def test_unmarked_bytes_of_parquet_are_texts(tmp_path):
    """As older writers leave them."""
    pq.write_table(pa.table({"user": ["é".encode(), b"b"], "item": ["x", "y"]}), tmp_path / "a.parquet")
    assert pairs_of(ingest(tmp_path / "a.parquet", tmp_path / "ds")) == {"é": ["x"], "b": ["y"]}


@pytest.mark.parametrize("column", ["user", "item"])
def test_bytes_in_memory_are_no_texts(tmp_path, column):
    table = {"user": ["u"], "item": [["i"]]} | {
        column: pa.array([b"\xe9" if column == "user" else [b"\xe9"]])
    }
    with mistake(DataError, place="the table", option=column):
        ingest(pa.table(table), tmp_path / "ds")
