"""Source formats: what each reads, and the sentence for everything that is wrong."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widenet.data.dataset import Dataset
from widenet.data.formats import adjacency, csv, parquet
from widenet.data.formats.table import format_of
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
        (HEAD + "a,x,1\n" * 3 + "a,y,five\n", {}, 'r.csv: line 5: column "rating" must be a number; got "five". Fix or remove the row.'),
        (HEAD + "a,x,1\na,y,\n", {}, 'r.csv: line 3: column "rating" must be a number. Fix or remove the row.'),
        (HEAD + "a,x,nan\n", {}, 'r.csv: line 2: column "rating" must be a number; got "nan". Fix or remove the row.'),
        (HEAD + "a,x,1e39\n", {}, 'r.csv: line 2: column "rating" must be a number; got "1e39". Fix or remove the row.'),
        (HEAD + "a,x,1\n,y,2\n", {}, 'r.csv: line 3: column "user" must not be empty. Fix or remove the row.'),
        (HEAD + 'a,x,1\nb,"",2\n', {}, 'r.csv: line 3: column "item" must not be empty. Fix or remove the row.'),
        (HEAD + 'a,"x\ny",1\nb,y\n', {}, "r.csv: line 4: must have 3 columns; got 2. Quote text that holds the delimiter."),
        (HEAD + "a,x,1\nb,y,z,2\n", {}, "r.csv: line 3: must have 3 columns; got 4. Quote text that holds the delimiter."),
        (HEAD + 'a,x,1\nb,"y,2\nc,z,3\n', {}, "r.csv: line 3: must be CSV; unexpected end of data. Close the quotes, or remove them."),
        (HEAD.encode() + b"a,\xff,1\n", {}, "r.csv: line 2: must be UTF-8 text. Convert the file, for example with `iconv -t utf-8`."),
        (HEAD, {}, "r.csv: at least one interaction must be left; there is none. Check the file."),
        ("user,user\n", {}, 'r.csv: line 1: column names must differ; "user" stands twice. Rename one.'),
        ("\na,b\n", {}, "r.csv: line 1: must name the columns; it is empty."),
        ("", {}, "r.csv: must hold interactions; the file is empty."),
        ("who,what\na,b\n", {}, "r.csv: no column is obviously the user; it has who, what. Name one with --user."),
        (
            HEAD + "a,x,1\n",
            {"item": "itm"},
            'r.csv: column "itm" does not exist. Did you mean "item"? Choose with --item.',
        ),
        (
            HEAD + "a,x,1\na,y,soon\n",
            {"time": "rating", "value": None, "min_value": 1},
            'r.csv: line 3: column "rating" must be a number; got "soon". Fix or remove the row.',
        ),
        (
            HEAD.replace("item,", "item,day,") + "a,x,2024-05-01T12:00:00,1\na,y,May,2\n",
            {"time": "day"},
            'r.csv: line 3: column "day" must be a number or a timestamp; got "May". Fix or remove the row.',
        ),
        (
            HEAD + "a,x,1\na,y,2\n",
            {"min_value": 3},
            "r.csv: at least one interaction must be left; all 2 are below --min-value 3. Lower it.",
        ),
    ],
)
def test_a_wrong_csv_is_refused_with_place_rule_and_value(tmp_path, source, text, options, message):
    assert refusal(source("r.csv", text), tmp_path, **{"value": "rating" if "rating" in str(text) else None} | options) == message


def test_a_wrong_parquet_is_refused_by_its_row(tmp_path):
    path = tmp_path / "r.parquet"
    pq.write_table(pa.table({"user": ["a", "b", None], "item": [1, 2, 3], "rating": ["1", "x", "2"]}), path)
    assert refusal(path, tmp_path, value="rating") == 'r.parquet: row 2: column "rating" must be a number; got "x". Fix or remove the row.'
    assert refusal(path, tmp_path) == 'r.parquet: row 3: column "user" must not be empty. Fix or remove the row.'
    path.write_bytes(b"PAR1 and then nothing")
    assert "r.parquet: must be a Parquet file;" in refusal(path, tmp_path)


def test_a_wrong_adjacency_file_is_refused_by_its_line(tmp_path, source):
    assert "a.txt: line 2: must be UTF-8 text" in refusal(source("a.txt", b"1 2\n2 \xff\n"), tmp_path)
    expected = 'b.txt: column "rating" does not exist. Known: user, item. Choose with --value.'
    assert refusal(source("b.txt", "1 2\n"), tmp_path, value="rating") == expected


def test_a_wrong_path_is_refused(tmp_path, source):
    assert refusal(tmp_path / "none.csv", tmp_path) == "none.csv: the file does not exist. Check the path."
    (tmp_path / "folder.csv").mkdir()
    assert refusal(tmp_path / "folder.csv", tmp_path) == "folder.csv: must be a file; it is a directory. Name the files in it."
    (tmp_path / "ds").mkdir()
    assert "already exists, and a dataset is never overwritten" in refusal(source("r.csv", "user,item\na,x\n"), tmp_path)


def test_titles_that_name_no_item_are_refused(tmp_path, source):
    interactions = source("r.csv", "user,item\na,x\n")
    books = source("books.csv", "isbn,id,title\nx,1,One\n")
    expected = 'books.csv: column "id" must hold ids of items, such as "x"; none is one. Name the column with --title-id.'
    assert refusal(interactions, tmp_path, titles=books) == expected
    assert refusal(interactions, tmp_path, titles=source("t.csv", "id,name\nx\n")).startswith("t.csv: line 2: must have 2 columns; got 1.")
    assert ingest([interactions], tmp_path / "ds", titles=books, title_id="isbn").source["items_with_title"] == 1


def test_a_format_is_known_by_suffix_or_content_or_name(tmp_path, source):
    assert format_of(source("a.TSV", "x")) is csv
    assert format_of(source("a.pq", "x")) is parquet
    assert format_of(source("a.txt", "1 2 3\n")) is adjacency
    assert format_of(source("b.txt", "user,item\n1,2\n")) is csv
    assert format_of(source("c.txt", "user,item\n1,2\n"), "adjacency") is adjacency
    assert format_of(source("d", "PAR1...")) is parquet
    zipped = source("a.csv.gz", gzip.compress(b"\xef\xbb\xbfuser,item\na,x\n"))
    assert ingest([zipped], tmp_path / "ds").num_examples == 1


def write_pair(path, suffix, user, item):
    if suffix == "parquet":
        pq.write_table(pa.table({"user": [user], "item": [item]}), path)
    else:
        path.write_text(f"user,item\n{user},{item}\n" if suffix == "csv" else f"{user} {item}\n")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "adj"])
@pytest.mark.parametrize(("name", "beside"), [("data[1]", "data1"), ("data*", "data-all"), ("data?", "data2"), ("da[t]a", "data")])
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
    assert refusal(tmp_path / "r[1].parquet", tmp_path).startswith('r[1].parquet: row 2: column "user" must not be empty')


def test_a_quoted_header_and_a_quoted_path_are_read(tmp_path, source):
    path = source("it's.csv", 'user,"it\'em ""x"""\na,b\n')
    assert ingest([path], tmp_path / "ds", item='it\'em "x"').num_examples == 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("sessions.txt", '{"session": "s0", "items": [4, 5]}'),
        ("matrix.mtx", "%%MatrixMarket matrix coordinate real general"),
        ("movielens.txt", "1\t2,1112486027:29,1112484676:32,1112484819"),
        ("tags.txt", "user7\tjazz:blues"),
        ("train.svm", "3 0:0.5 7:1.25"),
    ],
)
def test_a_first_line_of_another_format_is_refused_in_one_short_sentence(tmp_path, name, line):
    (tmp_path / name).write_text(line + "\n" + line + "\n")
    with pytest.raises(DataError, match="line 1 is that of another format") as raised:
        ingest([tmp_path / name], tmp_path / "out")
    assert len(str(raised.value)) < 250 + len(str(tmp_path))
    assert not (tmp_path / "out").exists()


def test_ingest_says_how_it_reads_a_file_whose_format_it_has_guessed(tmp_path):
    (tmp_path / "train.txt").write_text("1 2 3\n4 5\n")
    said = []
    ingest([tmp_path / "train.txt"], tmp_path / "out", on_progress=said.append)
    assert "reading train.txt as adjacency" in said
