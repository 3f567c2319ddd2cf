"""Ends of lines: LF, CRLF and CR, mixed in every way, give the dataset of a file with one kind; in pieces,
and compressed.
"""

import random

import pytest

from tests.mistakes import mistake
from widenet.data.formats import text
from widenet.data.formats.text import TextFile
from widenet.data.ingest import ingest
from widenet.errors import DataError
from widenet.regular_files import LONGEST_LINE_BYTES

ENDS = ["\n", "\r\n", "\r"]
LINES = {
    "a.csv": ["user,item", *(f"u{row % 7},{row}" for row in range(60)), 'u1,"quo,ted"'],
    "a.tsv": [f"u{row % 7}\t{row}" for row in range(60)],
    "a.adj": [f"u{row} {row % 5} {row % 3 + 7}" for row in range(60)],
    "a.sessions": [f"{row % 5} {row % 3 + 7}" for row in range(60)],
    "a.dsstne": [f"u{row}\t{row % 5},1:{row % 3 + 7},2" for row in range(60)],
    "a.jsonl": [f'{{"user": "u{row}", "item": {row % 5}}}' for row in range(60)],
}


def digest(path, folder, **options):
    """The digest and the items of the dataset of a file."""
    dataset = ingest([path], folder, **options)
    return dataset.digest, dataset.vocabulary("items").all_ids().to_pylist()


@pytest.mark.parametrize("name", LINES)
def test_lines_may_end_in_several_ways(tmp_path, source, name):
    lines = LINES[name]
    expected = digest(source(name, "\n".join(lines) + "\n"), tmp_path / "even")
    draw = random.Random(3)
    for case, ends in enumerate((ENDS[:2], ENDS[1:], ENDS, ["\r"], ["\n"] * 40 + ["\r\n"])):
        mixed = "".join(line + draw.choice(ends) for line in lines).encode()
        assert digest(source(name, mixed), tmp_path / f"{case}") == expected


def test_a_bad_line_has_the_number_that_an_editor_shows(tmp_path, source):
    path = source("a.csv", "user,item\r\nu1,a\ru2,b\nu3\nu4,d\r\n")
    with mistake(DataError, line=4, place="a.csv"):
        ingest([path], tmp_path / "ds")
    assert ingest([path], tmp_path / "ds", skip_bad_lines=1).ids(slice(None)) == ["u1", "u2", "u4"]


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 5])
def test_a_file_is_made_even_in_pieces(tmp_path, source, monkeypatch, piece_bytes):
    monkeypatch.setattr(text, "_BLOCK_BYTES", piece_bytes)
    (tmp_path / "copies").mkdir()
    for content in (b"a\r\nb\rc\n", b"\r\r\n\n\r", b"\r\n\r", b"a\n\r\nb"):
        even = TextFile(source("a", content)).with_even_ends(tmp_path / "copies")
        assert even.path.read_bytes() == content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        assert even.shown == str(tmp_path / "a")
    for content in (b"a\nb", b"a\r\nb\r\n", b"", b"a"):
        assert TextFile(file := source("a", content)).with_even_ends(tmp_path / "copies").path == file


def test_an_endless_line_is_refused_after_its_first_part(tmp_path):
    with (tmp_path / "endless").open("wb") as file:
        file.write(b"user,item\n")
        file.truncate(2**40)
    with mistake(DataError, line=2):
        TextFile(tmp_path / "endless").check_end(LONGEST_LINE_BYTES)
