"""JSON lines: long lines, lists, and lines that hold no item."""

import json

import pytest

from tests.mistakes import mistake
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.errors import DataError


def json_lines(*rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def test_a_long_first_line_and_one_with_a_line_separator_are_whole(tmp_path, source):
    path = source("a.jsonl", json_lines({"user": "u", "items": [f"{number}" for number in range(20_000)]}))
    assert ingest(path, tmp_path / "a", item="items").fields["items"].width == 20_000
    ingest(source("b.jsonl", json_lines({"user": "u", "item": "x\u2028y"})), tmp_path / "b")
    assert Dataset.open(tmp_path / "b").vocabulary("items").all_ids().to_pylist() == ["x\u2028y"]


FIRST = [{"user": "u", "item": "a", "items": ["a"], "times": [1], "tags": ["p", "q"]}] * 120


def test_lists_that_are_not_read_may_have_any_length_and_those_that_are_may_be_empty(tmp_path, source):
    path = source("r.jsonl", json_lines(*FIRST, {"user": "v", "items": [], "times": []}))
    manifest = ingest(path, tmp_path / "ds", item="items", time="times").manifest
    assert (manifest.num_examples, manifest.fields["items"].width) == (2, 1)


@pytest.mark.parametrize("line", [1, 2])
@pytest.mark.parametrize("key", [b"t\xffag", b't": 1, "t\xffag'])
def test_a_key_that_is_not_utf_8_names_its_line(line, key, tmp_path):
    rows = [b'{"user": "u1", "item": "a"}'] * 2
    rows[line - 1] = b'{"user": "u1", "item": "b", "' + key + b'": "x"}'
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(rows) + b"\n")
    with mistake(DataError):
        ingest(tmp_path / "r.jsonl", tmp_path / "other")
    ingest(tmp_path / "r.jsonl", tmp_path / "data", skip_bad_lines=1)
    assert Dataset.open(tmp_path / "data").vocabulary("items").all_ids().to_pylist() == ["a"]
