"""Source formats: what each reads, and the sentence for everything that is wrong."""

import gzip
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widenet.data.dataset import Dataset
from widenet.data.formats import text
from widenet.data.formats.source import Reading
from widenet.data.formats.table import opened
from widenet.data.ingest import ingest
from widenet.errors import DataError

HEAD = "user,item,rating\n"


def refusal(path, tmp_path, **options):
    with pytest.raises(DataError) as caught:
        ingest([path], tmp_path / "ds", **options)
    return str(caught.value).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            HEAD + "a,x,1\n" * 3 + "a,y,five\n",
            {},
            'r.csv: line 5: column "rating" must be a number; got "five". Fix or remove the row.',
        ),
        (
            HEAD + "a,x,1\na,y,\n",
            {},
            'r.csv: line 3: column "rating" must be a number; the cell is empty.'
            " Fix or remove the row, or skip it with `skip_bad_lines`.",
        ),
        (
            HEAD + "a,x,nan\n",
            {},
            'r.csv: line 2: column "rating" must be a number; got "nan". Fix or remove the row.',
        ),
        (
            HEAD + "a,x,1e39\n",
            {},
            (
                'r.csv: line 2: column "rating" must lie between -3.4e38 and 3.4e38, as a float32 does; got'
                ' "1e39". Scale the column down, or take its logarithm.'
            ),
        ),
        (
            HEAD + "a,x,1\n,y,2\n",
            {},
            'r.csv: line 3: column "user" must not be empty.'
            " Fix or remove the row, or skip it with `skip_bad_lines`.",
        ),
        (
            HEAD + 'a,x,1\nb,"",2\n',
            {},
            'r.csv: line 3: column "item" must not be empty.'
            " Fix or remove the row, or skip it with `skip_bad_lines`.",
        ),
        (
            HEAD + 'a,"x\ny",1\nb,y\n',
            {},
            "r.csv: line 4: must have 3 columns; got 2. Add those that it lacks.",
        ),
        (
            HEAD + "a,x,1\nb,y,z,2\n",
            {},
            "r.csv: line 3: must have 3 columns; got 4. Quote text that holds the delimiter.",
        ),
        (
            HEAD + 'a,x,1\nb,"y,2\nc,z,3\n',
            {},
            "r.csv: line 3: must be CSV; unexpected end of data. Close the quotes, or remove them.",
        ),
        (
            HEAD.encode() + b"a,\xff,1\n",
            {},
            (
                "r.csv: line 2: must be UTF-8 text. Convert the file, with `iconv -f cp1252 -t utf-8` if it"
                " comes from Windows, or else with `iconv -f latin1 -t utf-8`."
            ),
        ),
        ("user,user\n", {}, 'r.csv: line 1: column names must differ; "user" occurs twice. Rename one.'),
        ("\na,b\n", {}, "r.csv: line 1: must name the columns; it is empty."),
        ("", {}, "r.csv: must have rows; the file is empty."),
        (
            "who,what\na,b\n",
            {},
            (
                "r.csv: no column is obviously the user; it has who, what. Name one with `user`, or use"
                " `header=False` if line 1 is data."
            ),
        ),
        (
            HEAD + "a,x,1\n",
            {"item": "itm"},
            (
                'r.csv: column "itm" does not exist; it has user, item, rating. Did you mean "item"? Choose'
                " with `item`."
            ),
        ),
        (
            HEAD + "a,x,1\na,y,soon\n",
            {"time": "rating", "value": None, "min_value": 1},
            'r.csv: column "rating" cannot be both value and time. Name another with `time`.',
        ),
        (
            HEAD.replace("item,", "item,day,") + "a,x,2024-05-01T12:00:00,1\na,y,May,2\n",
            {"time": "day"},
            'r.csv: line 3: column "day" must be a number or a timestamp; got "May". Say how it is written'
            " with `time_format`, or fix the row.",
        ),
        (
            HEAD + "a,x,1\na,y,2\n",
            {"min_value": 3},
            "r.csv: at least one interaction must be left; all 2 are below `min_value=3`. Lower it.",
        ),
    ],
)
def test_a_wrong_csv_is_refused_with_place_rule_and_value(tmp_path, source, text, options, message):
    assert (
        refusal(
            source("r.csv", text),
            tmp_path,
            **{"value": "rating" if "rating" in str(text) else None} | options,
        )
        == message
    )


def test_a_wrong_parquet_is_refused_by_its_row(tmp_path):
    path = tmp_path / "r.parquet"
    pq.write_table(pa.table({"user": ["a", "b", None], "item": [1, 2, 3], "rating": ["1", "x", "2"]}), path)
    assert (
        refusal(path, tmp_path, value="rating")
        == 'r.parquet: row 2: column "rating" must be a number; got "x". Fix or remove the row.'
    )
    assert (
        refusal(path, tmp_path) == 'r.parquet: row 3: column "user" must not be empty. Fix or remove the row.'
    )
    path.write_bytes(b"PAR1 and then nothing")
    assert "r.parquet: must be a Parquet file;" in refusal(path, tmp_path)


def test_a_wrong_adjacency_file_is_refused_by_its_line(tmp_path, source):
    assert "a.adj: line 2: must be UTF-8 text" in refusal(source("a.adj", b"1 2\n2 \xff\n"), tmp_path)
    expected = 'b.adj: column "rating" does not exist; it has user, item. Choose with `value`.'
    assert refusal(source("b.adj", "1 2\n"), tmp_path, value="rating") == expected


def test_a_wrong_path_is_refused(tmp_path, source):
    assert refusal(tmp_path / "none.csv", tmp_path) == "none.csv: the file does not exist. Check the path."
    (tmp_path / "folder.csv").mkdir()
    assert (
        refusal(tmp_path / "folder.csv", tmp_path)
        == "folder.csv: must be a file; it is a directory. Name the files in it."
    )
    (tmp_path / "ds").mkdir()
    assert "already exists. Replace it with `overwrite=True`, choose another `out`" in refusal(
        source("r.csv", "user,item\na,x\n"), tmp_path
    )


def test_titles_that_name_no_item_are_refused(tmp_path, source):
    interactions = source("r.csv", "user,item\na,x\n")
    books = source("books.csv", "isbn,id,title\nx,1,One\n")
    expected = (
        'books.csv: column "id" must hold ids of items, such as "x"; it holds none. Name the column with'
        " `title_id`."
    )
    assert refusal(interactions, tmp_path, titles=books) == expected
    assert refusal(interactions, tmp_path, titles=source("t.csv", "id,name\nx\n")).startswith(
        "t.csv: line 2: must have 2 columns; got 1."
    )
    assert (
        ingest([interactions], tmp_path / "ds", titles=books, title_id="isbn").manifest.source[
            "items_with_title"
        ]
        == 1
    )


def test_a_format_is_known_by_suffix_or_content_or_name(tmp_path, source):
    def kind(path, **reading):
        return type(opened(path, Reading(**reading))).__name__

    write_pair(tmp_path / "d", "parquet", "a", "x")
    np.savez(tmp_path / "e", format=b"csr", shape=(1, 2), data=[1.0], indices=[1], indptr=[0, 1])
    assert kind(source("a.TSV", "user\titem\n")) == "Csv"
    assert kind(source("a.txt", "1 2 3\n2 9\n")) == "Adjacency"
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


def test_a_mistake_in_a_parquet_file_is_looked_for_in_that_file(tmp_path):
    pq.write_table(pa.table({"user": ["a", None], "item": ["x", "y"]}), tmp_path / "r[1].parquet")
    pq.write_table(pa.table({"user": ["a"], "item": ["x"]}), tmp_path / "r1.parquet")
    assert refusal(tmp_path / "r[1].parquet", tmp_path).startswith(
        'r[1].parquet: row 2: column "user" must not be empty'
    )


def test_quoted_and_spaced_headers_and_a_quoted_path_are_read(tmp_path, source):
    path = source("it's.csv", 'user,"it\'em ""x"""\na,b\n')
    assert ingest([path], tmp_path / "ds", item='it\'em "x"').num_examples == 1
    spaced = source("r.csv", "user; what \na;x\n")
    assert ingest([spaced], tmp_path / "spaced", item="what").vocabulary("items").ids([0]) == ["x"]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("matrix.mtx", "%%MatrixMarket matrix coordinate real general"),
        ("train.svm", "3 0:0.5 7:1.25"),
    ],
)
def test_a_first_line_of_another_format_is_refused_in_one_short_sentence(tmp_path, name, line):
    (tmp_path / name).write_text(line + "\n" + line + "\n")
    with pytest.raises(DataError, match="line 1 is in another format") as raised:
        ingest([tmp_path / name], tmp_path / "out")
    assert len(str(raised.value)) < 250 + len(str(tmp_path))
    assert not (tmp_path / "out").exists()


def test_a_table_that_may_be_dsstne_text_is_not_guessed(tmp_path, source):
    path = source("tags.txt", "user7\tspotify:track\n")
    expected = (
        "tags.txt: line 1 may be a table with tabs, or DSSTNE's text without values. Use `format='csv'` or"
        " `format='dsstne'`."
    )
    assert refusal(path, tmp_path) == expected
    assert ingest(path, tmp_path / "two", format="dsstne").fields["items"].width == 2
    assert ingest(path, tmp_path / "one", header=False).fields["items"].width == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.txt",
            "1 2 3\n2 5\n",
            "adjacency (the first word of a line is the user): user = user, item = item",
        ),
        (
            "b.csv",
            "u1,i1,stars\n1,2,3\n",
            "csv (commas, line 1 names the columns): user = u1, item = i1, value = stars",
        ),
        (
            "c.dat",
            "1::7::5::978300760\n1::8::3::978302109\n",
            "csv (double colons, no header): user = 1, item = 2, value = 3; not read: 4",
        ),
        (
            "d.tsv",
            "user\titem\tprice, sum\na\tb\t1,50\n",
            "csv (tabs, line 1 names the columns): user = user, item = item; not read: price, sum",
        ),
    ],
)
def test_ingest_says_how_it_reads_a_file(tmp_path, source, name, text, said):
    said_aloud = []
    options = (
        {"user": "u1", "item": "i1", "value": "stars"}
        if name == "b.csv"
        else {"value": "3"}
        if name == "c.dat"
        else {}
    )
    ingest([source(name, text)], tmp_path / "out", **options, on_progress=said_aloud.append)
    assert said_aloud[0] == f"reading {name} as {said}"


def test_a_table_of_spaces_is_not_guessed(tmp_path, source):
    path = source("ratings.dat", "1 10 5\n1 11 3\n2 10 4\n")
    doubt = (
        "its lines may be a user, an item and numbers, or a user and its items. Use `delimiter='space'` or"
        " `format='adjacency'`."
    )
    assert refusal(path, tmp_path) == f"ratings.dat: {doubt}"
    assert ingest(path, tmp_path / "csv", delimiter="space", value="3").fields["items"].width == 2
    assert ingest(path, tmp_path / "adjacency", format="adjacency").fields["items"].width == 5


@pytest.mark.parametrize("name", ["s.sessions", "s.adj"])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path, source, name):
    ingest(source(name, b"\xef\xbb\xbfa b\nc a\n"), tmp_path / "ds")
    assert all(
        name in "abc" for name in Dataset.open(tmp_path / "ds").vocabulary("items").all_ids().to_pylist()
    )


def test_columns_that_differ_in_case_alone_are_refused(tmp_path, source):
    expected = (
        'r.csv: line 1: column names must differ; "User" occurs twice, apart from upper and lower case.'
        " Rename one."
    )
    assert refusal(source("r.csv", "User,user,item\n1,a,x\n"), tmp_path) == expected


def test_ids_that_are_rarely_meant_are_kept_and_told(tmp_path, source):
    told = []
    path = source("r.csv", "user,item\nNULL,a\nNULL,b\nnan,a\nu1,a \nu1,7.0\nu1,1.2E+15\nu2,a\n")
    assert ingest(path, tmp_path / "ds", on_progress=told.append).num_examples == 4
    assert [line for line in told if line.startswith("note")] == [
        'note: the user "NULL" and 1 like it, in 3 rows, may stand for a missing id; kept as it is',
        'note: the item "a ", in 1 row, has spaces at its ends; kept as it is',
        'note: the item "7.0", in 1 row, may be a whole number that became a float; kept as it is',
        'note: the item "1.2E+15", in 1 row, may be a number that a spreadsheet has rounded; kept as it is',
    ]


def test_a_time_must_be_finite(tmp_path, source):
    expected = 'r.csv: line 3: column "ts" must be a number or a timestamp; got "nan". '
    told = refusal(source("r.csv", "user,item,ts\na,x,5e200\na,y,nan\n"), tmp_path, time="ts")
    assert told.startswith(expected)
    assert "line 2" in refusal(source("r.csv", "user,item,ts\na,x,inf\n"), tmp_path, time="ts")


def test_a_pipe_is_refused_for_it_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    expected = "it is read more than once; it is a pipe or a device. Pipe it in, with - as the source."
    assert expected in refusal(tmp_path / "pipe.csv", tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n\n\n\n"], ids=ascii)
@pytest.mark.parametrize("line", ["a", "abc", "abcdefgh"])
def test_the_last_line_may_have_so_many_bytes_and_no_more(tmp_path, monkeypatch, pack, end, line):
    monkeypatch.setattr(text, "_BLOCK_BYTES", 3)
    path = tmp_path / "a.csv"
    path.write_bytes(pack(f"the longest line\n12\r\n{line}{end}".encode()))
    text.TextFile(path).check_end(len(line))
    with pytest.raises(DataError, match="the last line must have at most"):
        text.TextFile(path).check_end(len(line) - 1)


def test_the_end_of_a_file_is_looked_at_once(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a\nb\n")
    file = text.TextFile(path)
    file.check_end(1)
    path.unlink()
    file.check_end(1)
