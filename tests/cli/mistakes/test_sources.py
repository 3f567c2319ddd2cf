# ruff: noqa: E501 - a row of the table is a line
"""Sources of `widenet data ingest` that break a rule: the place, the rule and the remedy, and nothing is
left behind.
"""

import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = "user,item\n" + "".join(f"u{row},{row * 7 % 13}\n" for row in range(5000))
RATED = "user,item,rating\nu1,1,{}\n"


def parquet(**columns):
    """The bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def npz(**arrays):
    """The bytes of a .npz file."""
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return sink.getvalue()


GZIP = gzip.compress(ROWS.encode(), mtime=0)
TABLE = parquet(user=["a", "b"], item=["1", "2"], rating=[1.0, float("nan")])
MATRIX = {"indices": np.array([0, 1]), "indptr": np.array([0, 1, 2]), "shape": np.array([2, 2])}

# fmt: off
SOURCES = {
    'an empty file': ("a.csv", "", "", 'must have rows; the file is empty.'),
    'no line but the header': ("a.csv", "user,item\n", "", 'must hold interactions; read as csv (commas, line 1 names the columns), it has none. Check what it holds, or use --no-header if line 1 is data.'),
    'empty lines': ("a.csv", "\n\n\n", "", 'line 1: must name the columns; it is empty.'),
    'one column': ("a.csv", "user\nu1\n", "", 'no column is obviously the item; it has user. Name one with --item, or use --no-header if line 1 is data.'),
    'one column without a name': ("a.csv", "7\n", "", 'no column is obviously the user; it has 1. Name one with --user.'),
    'a column twice': ("a.csv", "user,user\nu1,1\n", "", 'line 1: column names must differ; "user" occurs twice. Rename one.'),
    'a cell too few': ("a.csv", "user,item\nu1,1\nu2\n", "", 'line 3: must have 2 columns; got 1. Add those that it lacks.'),
    'a cell too many': ("a.csv", "user,item\nu1,1\nu2,2,3\n", "", 'line 3: must have 2 columns; got 3. Quote text that holds the delimiter.'),
    'no user': ("a.csv", "user,item\n,1\n", "", 'line 2: column "user" must not be empty. Fix or remove the row, or skip it with --skip-bad-lines.'),
    'no item': ("a.csv", "user,item\nu1,\n", "", 'line 2: column "item" must not be empty. Fix or remove the row, or skip it with --skip-bad-lines.'),
    'an open quote': ("a.csv", 'user,item\n"u1,1\nu2,2\n', "", 'line 2: must be CSV; unexpected end of data. Close the quotes, or remove them.'),
    'a field of 9 MB': ("a.csv", f"user,item\n{'u' * 9_000_000},1\nu2,1\n", "", 'line 2: must be CSV; field larger than field limit (131072). Close the quotes, or remove them.'),
    'a last line of 17 MB': ("a.csv", f"user,item\n{'u' * 17_000_000},1\n", "", 'the last line must have at most 2,097,152 bytes; it is longer. Close its quotes, or split it.'),
    'a last line of 9 MB in gzip': ("a.csv.gz", gzip.compress(b"user,item\nu1,1\nu2," + b"1" * 9_000_000, 1), "", 'the last line must have at most 2,097,152 bytes; it is longer. Close its quotes, or split it.'),
    'a last line of 34 MB in gzip': ("a.adj.gz", gzip.compress(b"u1 1\nu2" + b" 1" * 17_000_000, 1), "", 'the last line must have at most 16,777,216 bytes; it is longer. Close its quotes, or split it.'),
    'another encoding': ("a.csv", "user,item\nu1,caf\u00e9\n".encode("latin-1"), "", 'line 2: must be UTF-8 text. Convert the file, with `iconv -f cp1252 -t utf-8` if it comes from Windows, or else with `iconv -f latin1 -t utf-8`.'),
    'names of columns in another encoding': ("a.csv", "user,it\u00e9m\nu1,a\n".encode("latin-1"), "", 'line 1: must be UTF-8 text. Convert the file, with `iconv -f cp1252 -t utf-8` if it comes from Windows, or else with `iconv -f latin1 -t utf-8`.'),
    'a NUL in an item': ("a.csv", "user,item\nu1,a\0b\n", "", 'line 2: column "item" must not hold the character NUL. If the file is UTF-16, convert it with `iconv -f utf-16 -t utf-8`; otherwise remove the character.'),
    'a NUL in a user': ("a.csv", "user,item\nu2,1\nu\0,2\n", "", 'line 3: column "user" must not hold the character NUL. If the file is UTF-16, convert it with `iconv -f utf-16 -t utf-8`; otherwise remove the character.'),
    'UTF-16 with its mark': ("a.csv", "user\titem\nu1\t1\n".encode("utf-16"), "", "must be one of csv, parquet, adjacency, sessions, jsonl, dsstne, npz; it looks like text in UTF-16. Save it as UTF-8, or convert it with `iconv -f utf-16 -t utf-8`."),
    'semicolons for commas': ("a.csv", "Kunde;Nr;w\na;1;2,5\n", "--delimiter , --user Kunde", "line 1: must have columns separated by commas; it looks separated by semicolons. Use --delimiter ';'."),
    'quoted semicolons for commas': ("a.csv", '"Kunde";"Nr"\na;1\n', "--delimiter , --user Kunde", "line 1: must have columns separated by commas; it looks separated by semicolons. Use --delimiter ';'."),
    'tabs for bars': ("a.csv", "user\titem\nu1\t1\n", "--delimiter |", "line 1: must have columns separated by bars; it looks separated by tabs. Use --delimiter tab."),
    'UTF-16': ("a.csv", "user,item\nu1,1\n".encode("utf-16-le"), "", "line 1: must not hold the character NUL. If the file is UTF-16, convert it with `iconv -f utf-16 -t utf-8`; otherwise remove the character."),
    'a decimal comma': ("a.csv", RATED.format('"1,5"'), "--value rating", 'line 2: column "rating" must be a number; got "1,5". Write 1.5, or use --decimal , for CSV with decimal commas.'),
    'a decimal point': ("a.csv", RATED.format('"1.5"'), "--value rating --decimal ,", 'line 2: column "rating" must be a number; got "1.5". Write 1,5, or leave --decimal out.'),
    'a word for a number': ("a.csv", RATED.format("five"), "--value rating", 'line 2: column "rating" must be a number; got "five". Fix or remove the row.'),
    'NaN': ("a.csv", RATED.format("nan"), "--value rating", 'line 2: column "rating" must be a number; got "nan". Fix or remove the row.'),
    'infinity': ("a.csv", RATED.format("-inf"), "--value rating", 'line 2: column "rating" must be a number; got "-inf". Fix or remove the row.'),
    'beyond float32': ("a.csv", RATED.format("1e39"), "--value rating", 'line 2: column "rating" must lie between -3.4e38 and 3.4e38, as a float32 does; got "1e39". Scale the column down, or take its logarithm.'),
    'thousands or decimals': ("a.csv", RATED.format('"1,000"'), "--value rating", 'line 2: column "rating" must be a number; got "1,000". Write 1000 if the comma separates thousands, or use --decimal , if it is a decimal comma.'),
    'commas between thousands': ("a.csv", RATED.format('"1,000,000.5"'), "--value rating", 'line 2: column "rating" must be a number; got "1,000,000.5". Write 1000000.5, without commas between thousands.'),
    'points between thousands': ("a.csv", RATED.format('"1.000,5"'), "--value rating --decimal ,", 'line 2: column "rating" must be a number; got "1.000,5". Write 1000,5, without points between thousands.'),
    'a day of another order': ("a.csv", "user,item,at\nu1,1,31/12/2024\n", "--time at", """line 2: column "at" must be a number or a timestamp; got "31/12/2024". Use --time-format '%d/%m/%Y'."""),
    'a day of two orders': ("a.csv", "user,item,at\nu1,1,1/2/2024 10:00\n", "--time at", """line 2: column "at" must be a number or a timestamp; got "1/2/2024 10:00". Use --time-format '%d/%m/%Y %H:%M' or '%m/%d/%Y %H:%M'."""),
    'a month in words': ("a.csv", 'user,item,at\nu1,1,"May 1, 2024"\n', "--time at", """line 2: column "at" must be a number or a timestamp; got "May 1, 2024". Use --time-format '%b %d, %Y' or '%B %d, %Y'."""),
    'a zone by name': ("a.csv", "user,item,at\nu1,1,2024-05-01T10:00:00 Europe/Berlin\n", "--time at", 'line 2: column "at" must be a number or a timestamp; got "2024-05-01T10:00:00 Europe/Berlin". Say how it is written with --time-format, or fix the row.'),
    'another format of times': ("a.csv", "user,item,at\nu1,1,2024-12-31\n", "--time at --time-format %d/%m/%Y", """line 2: column "at" must be a time as --time-format '%d/%m/%Y' has it; got "2024-12-31". If the column has both forms, also give --time-format '%Y-%m-%d'. Correct the format, or fix the row."""),
    'no number': ("a.csv", RATED.format(""), "--value rating", 'line 2: column "rating" must be a number; the cell is empty. Fix or remove the row, or skip it with --skip-bad-lines.'),
    'no time': ("a.csv", "user,item,at\nu1,1,yesterday\n", "--time at", 'line 2: column "at" must be a number or a timestamp; got "yesterday". Say how it is written with --time-format, or fix the row.'),
    'more bad lines than may be skipped': ("a.csv", RATED.format("x") + "u2,1,y\nu3,1,1\n", "--value rating --skip-bad-lines 1", 'line 2: column "rating" must be a number; got "x". Fix or remove the row. Reading stopped at line 3, when more than 1 line was bad: fix them, or raise --skip-bad-lines.'),
    'columns with spaces': ("a.csv", "who; what \nu1;1\n", "", 'no column is obviously the user; it has who, " what ". Name one with --user, or use --no-header if line 1 is data.'),
    'a column that is not there': ("a.csv", "user,item\nu1,1\n", "--user usr", 'column "usr" does not exist; it has user, item. Did you mean "user"? Choose with --user.'),
    'one column for two roles': ("a.csv", "user,item\nu1,1\n", "--item user", 'column "user" cannot be both user and item. Name another with --item.'),
    'too few names': ("a.csv", "u1,1,5\n", "--columns user,item", 'line 1: must have the columns user, item; got 3. Correct --columns.'),
    'a cut-off gzip': ("a.csv.gz", GZIP[: len(GZIP) // 2], "", 'must be a complete gzip file; Compressed file ended before the end-of-stream marker was reached. Download or compress it again.'),
    'a wrong gzip checksum': ("a.csv.gz", GZIP[:-8] + bytes(4) + GZIP[-4:], "", 'must be a complete gzip file; CRC check failed 0x0 != 0x3d5e7d98. Download or compress it again.'),
    'no gzip after its magic': ("a.csv.gz", b"\x1f\x8bnothing at all", "", 'must be a complete gzip file; Unknown compression method. Download or compress it again.'),
    'a damaged zstd': ("a.csv.zst", b"\x28\xb5\x2f\xfdnothing at all", "", 'must be a complete zstd file; ZSTD decompress failed: Unsupported frame parameter. Download or compress it again.'),
    'a cut-off Parquet': ("a.parquet", TABLE[: len(TABLE) // 2], "", 'must be a Parquet file; Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file. Check the file, or name another --format.'),
    'a Parquet of four bytes': ("a.parquet", b"PAR1", "", 'must be a Parquet file; Parquet file size is 4 bytes, smaller than the minimum file footer (8 bytes). Check the file, or name another --format.'),
    'text called Parquet': ("a.parquet", ROWS, "", 'must be a Parquet file; Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file. Check the file, or name another --format.'),
    'a damaged page of Parquet': ("a.parquet", TABLE[:4] + bytes(40) + TABLE[44:], "", 'cannot be read: TProtocolException: Invalid data. Check the file, or name its --format.'),
    "NaN that Parquet's statistics hide": ("a.parquet", TABLE, "--value rating", 'row 2: column "rating" must be a number; got "nan". Fix or remove the row.'),
    'no rows of Parquet': ("a.parquet", parquet(user=pa.array([], pa.string()), item=pa.array([], pa.string())), "", 'must hold interactions; read as Parquet, it has none. Check what it holds.'),
    'a null user': ("a.parquet", parquet(user=["a", None], item=["1", "2"]), "", 'row 2: column "user" must not be empty. Fix or remove the row.'),
    'lists for items': ("a.parquet", parquet(user=["a"], item=[[1]]), "", 'no column is obviously the item; it has user. Name one with --item.'),
    'objects for items': ("a.parquet", parquet(user=["a"], item=[{"id": 1}]), "", 'no column is obviously the item; it has user. Name one with --item.'),
    'a NUL in Parquet': ("a.parquet", parquet(user=["a\0"], item=["1"]), "", 'cannot be read: an id holds the character NUL. Check the file, or name its --format.'),
    'JSON that ends early': ("a.jsonl", '{"user":"u","item":1}\n{"user":"u"\n', "", "line 2: must be a JSON object; at character 13, the text ends before its brackets are closed. Fix or remove the line."),
    'an array of numbers': ("a.json", "[1, 2]\n", "", "object 1: must be a JSON object with a user and an item; got 1. Convert the file."),
    'an array with a number': ("a.json", '[{"user":"u","item":1},\n 2]\n', "", "object 2: must be a JSON object. Fix or remove the line."),
    'an array that ends early': ("a.json", '[{"user":"u","item":1},\n {"user":"u","item":2}', "", "object 2: must be a JSON array of objects; the file ends within the array. Correct or complete the file."),
    'an array with an object that ends early': ("a.json", '[{"user":"u","item":1},\n {"user":"u"', "", "object 2: must be a JSON array of objects; the text ends before its brackets are closed. Correct or complete the file."),
    'an array without a comma': ("a.json", '[{"user":"u","item":1} {"user":"u","item":2}]', "", "object 1: must be a JSON array of objects; a comma or the end of the array is missing. Correct or complete the file."),
    'two arrays': ("a.json", '[{"user":"u","item":1}]\n[{"user":"u","item":2}]\n', "", "object 1: must be a JSON array of objects; text follows the end of the array. Correct or complete the file."),
    'a bad object in an array': ("a.json", '[{"user":"u","item":1,"rating":1},\n\n{"user":"u","item":2,"rating":"x"}]', "--value rating", 'object 2: column "rating" must be a number; got "x". Fix or remove the row.'),
    'bytes that are no text, in an array': ("a.json", b'[{"user":"u","item":"\xff"}]', "", 'object 1: must be UTF-8 text. Convert the file, with `iconv -f cp1252 -t utf-8` if it comes from Windows, or else with `iconv -f latin1 -t utf-8`.'),
    'a deep array': ("a.json", "[" * 100_000, "", "object 1: must be a JSON array of objects; it is nested too deeply. Correct or complete the file."),
    'an empty array': ("a.json", "[ ]", "", "must be a JSON array of objects; it is empty. Check the file."),
    'words after JSON': ("a.jsonl", '{"user":"u","item":1}\n{"user":"u","item":1} x\n', "", 'line 2: must be a JSON object; at character 23, nothing may follow the first value. Fix or remove the line.'),
    'a list and no list': ("a.jsonl", '{"user":"u","item":[1]}\n{"user":"u","item":2}\n', "", 'line 2: "item" must be a list, as in the first lines. Fix or remove the line.'),
    'lists of several lengths': ("a.jsonl", '{"user":"u","item":[1],"rating":[1,2]}\n', "--value rating", 'line 1: the lists item, rating must have the same length. Fix or remove the line.'),
    'a NaN literal': ("a.jsonl", '{"user":"u","item":1,"rating":NaN}\n', "--value rating", 'line 1: column "rating" must be a number; got "NaN". Fix or remove the row.'),
    'true for a number': ("a.jsonl", '{"user":"u","item":1,"rating":true}\n', "--value rating", 'line 1: column "rating" must be a number; got "true". Fix or remove the row.'),
    'a key twice': ("a.jsonl", '{"user":"u","user":"v","item":1}\n', "", 'line 1: must be a JSON object; the key "user" stands twice in one object. Fix or remove the line.'),
    'deep nesting': ("a.jsonl", '{"user":"u","item":' + "[" * 100_000 + "]" * 100_000 + "}\n", "", "line 1: must be a JSON object, one a line. Convert the file, for example with `jq -c '.[]'`."),
    'a byte order mark': ("a.jsonl", b'\xef\xbb\xbf{"user":"u","item":1}\n', "", 'line 1: must not begin with a byte order mark. Remove it, for example with `tail -c +4`.'),
    'half a character': ("a.jsonl", '{"user":"\\ud800","item":1}\n', "", 'line 1: must be UTF-8 text. Convert the file, with `iconv -f cp1252 -t utf-8` if it comes from Windows, or else with `iconv -f latin1 -t utf-8`.'),
    'an escaped NUL': ("a.jsonl", '{"user":"\\u0000","item":1}\n', "", 'line 1: column "user" must not hold the character NUL. If the file is UTF-16, convert it with `iconv -f utf-16 -t utf-8`; otherwise remove the character.'),
    'a null item': ("a.jsonl", '{"user":"u","item":1}\n{"user":"u"}\n', "", 'line 2: column "item" must not be empty. Fix or remove the row, or skip it with --skip-bad-lines.'),
    'no tab': ("a.dsstne", "u1 a,1\n", "", 'line 1: must be a name, a tab and features; it has no tab. Fix or remove the line.'),
    'no name': ("a.dsstne", "\ta,1\n", "", 'line 1: column "user" must not be empty. Fix or remove the row, or skip it with --skip-bad-lines.'),
    'no feature': ("a.dsstne", "u1\t,1\n", "", 'line 1: column "item" must not be empty. Fix or remove the row, or skip it with --skip-bad-lines.'),
    "a feature's value that is none": ("a.dsstne", "u1\ta,1:b,x\n", "--value value", 'line 1: column "value" must be a number; got "x". Fix or remove the row.'),
    'bytes that are no text': ("a.dsstne", b"u1\ta,1\xff\n", "", 'line 1: must be UTF-8 text. Convert the file, with `iconv -f cp1252 -t utf-8` if it comes from Windows, or else with `iconv -f latin1 -t utf-8`.'),
    'bytes that are no text, in words': ("a.adj", b"u1 a\nu2 \xff\n", "", 'line 2: must be UTF-8 text. Convert the file, with `iconv -f cp1252 -t utf-8` if it comes from Windows, or else with `iconv -f latin1 -t utf-8`.'),
    'a NUL in words': ("a.adj", "u1 a\nu2 b\0\n", "", "line 2: must not hold the character NUL. If the file is UTF-16, convert it with `iconv -f utf-16 -t utf-8`; otherwise remove the character."),
    'no words': ("a.adj", "\n\n", "", 'must hold interactions; read as adjacency (the first word of a line is the user), it has none. Check what it holds.'),
    'bytes that are no text, in sessions': ("a.sessions", b"a b\n\xff\n", "", 'line 2: must be UTF-8 text. Convert the file, with `iconv -f cp1252 -t utf-8` if it comes from Windows, or else with `iconv -f latin1 -t utf-8`.'),
    'no zip': ("a.npz", b"PK\x03\x04", "", 'must hold a sparse matrix that scipy.sparse.save_npz wrote, in CSR, CSC or COO form; File is not a zip file. Write it again with `save_npz(path, matrix.tocsr())`.'),
    'no matrix': ("a.npz", npz(rows=np.arange(3)), "", "must hold a sparse matrix that scipy.sparse.save_npz wrote, in CSR, CSC or COO form; it has no array 'format'. Write it again with `save_npz(path, matrix.tocsr())`."),
    'a matrix of another shape': ("a.npz", npz(format=b"csr", data=np.ones(3), **MATRIX), "", 'must hold a sparse matrix that scipy.sparse.save_npz wrote, in CSR, CSC or COO form; its arrays do not fit its shape. Write it again with `save_npz(path, matrix.tocsr())`.'),
    'NaN in a matrix': ("a.npz", npz(format=b"csr", data=np.array([1, np.nan]), **MATRIX), "--value value", 'row 2: column "value" must be a number; got "nan". Fix or remove the row.'),
    'a file of extreme classification': ("a", "2 9 4\n1,3 0:1 8:0.5\n 2:1\n", "", 'line 1 has three numbers, as files of extreme classification do. Use `widenet data extreme`.'),
    'a line of another format': ("a", "%%MatrixMarket matrix\n1 1 1\n", "", 'line 1 is in another format (libsvm or MatrixMarket). Convert it to one of csv, parquet, adjacency, sessions, jsonl, dsstne, npz.'),
    'rows of sequences that are not in the order of their times': ("a.csv", "user,item,timestamp\nu1,1,2\nu2,1,9\nu2,2,8\n", "--sequence", 'the rows of a sequence must be in order; those of user "u2" are not in the order of column "timestamp". Order them with --time timestamp, or remove the column.'),
    'a sequence or a user and its items': ("a.txt", "to be or not\nbe\n", "--sequence", "a line may be a user's sequence, or a user and its items. Use --format sessions or --format adjacency."),
    'sessions that may be users': ("a.txt", "10 20 10\n30 20\n", "", 'a line may be a user and its items, or a session of items alone. Use --format adjacency or --format sessions.'),
    'a padded table': ("a.txt", "  1   7  5\n 12   8  4\n", "", 'its lines look like a table: several spaces pad its columns. Use --delimiter space.'),
    'a table of decimals': ("a.txt", "1 7 5.0\n2 8 4.5\n", "", 'its lines look like a table: column 3 holds decimals. Use --delimiter space.'),
    'a padded table as lists': ("a.txt", "  1   7  5\n 12   8  4\n", "--format adjacency", "must be a user and its items in each line; it looks like a table: several spaces pad its columns. Use --delimiter space; if all its words are items, squeeze the spaces with `tr -s ' '`."),
    'a table with a time as lists': ("a.adj", "1 7 978300760\n2 8 978302109\n", "", "must be a user and its items in each line; it looks like a table: column 3 looks like seconds since 1970. Use --delimiter space; if all its words are items, squeeze the spaces with `tr -s ' '`."),
    'spaces in a CSV file': ("a.csv", "user   item\n  u1   i1\n", "", 'no column is obviously the user; it has user   item. Name one with --user, or use --no-header if line 1 is data, or use --delimiter space if spaces separate the columns.'),
    'a column too many among spaces': ("a.txt", "user item\n u1   i1\n u2 i2 i3\n", "--delimiter space", 'line 3: must have 2 columns; got 3. Fix or remove the line.'),
    'a quote among spaces': ("a.txt", 'user item\n u1 "i1"\n', "--delimiter space", "line 2: must not hold quotes if runs of spaces separate the columns. Use --delimiter ' ' if single spaces separate them, or remove the quotes."),
    'a time for an item': ("a.csv", "7,978300760,11\n7,978302109,12\n", "", 'column 2 looks like seconds since 1970, but would be read as the item. Use --user 1 --item 3 --time 2, or --item 2 if it is the item.'),
    'milliseconds for a user': ("a.csv", "1511544070123,7,11\n1511544070999,7,12\n", "", 'column 1 looks like milliseconds since 1970, but would be read as the user. Use --user 2 --item 3 --time 1, or --user 1 if it is the user.'),
    'a date for an item': ("a.tsv", "7\t2024-05-01\n8\t2024-05-02\n", "", 'column 2 looks like dates, but would be read as the item. Use --item 2 if it is the item.'),
    'sessions for users': ("a.tsv", "7 8 9\t4\n7\t8\n", "", 'column 1 looks like lists of numbers, but would be read as the user. Use --user 1 if it is the user.'),
    'a header that comes again': ("a.csv", "user,item\nu1,a\nuser,item\nu2,b\n", "", 'line 3: must hold data; it repeats the names of the columns. Remove the line.'),
    'a line of two formats': ("a", "u1\ta:b\n", "", "line 1 may be a table with tabs, or DSSTNE's text without values. Use --format csv or --format dsstne."),
}
# fmt: on
"""What is wrong: the name of a file, what it holds, options, and what is said of it."""


@pytest.mark.parametrize("wrong", SOURCES)
def test_a_bad_source_is_one_sentence(wrong, refused, desk):
    name, content, options, said = SOURCES[wrong]
    (desk / "bad" / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert (
        refused(" ".join(["data ingest", f"bad/{name}", "--out OUT", *options.split()]))
        == f"widenet: bad/{name}: {said}"
    )
