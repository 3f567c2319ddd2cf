"""A JSON array gives what the same objects give as JSON lines, however it is laid out, in pieces, and
compressed.
"""

import gzip
import json

import pyarrow as pa
import pytest

from widenet.data.formats import json_array
from widenet.data.formats.text import TextFile
from widenet.data.ingest import ingest

OBJECTS = [
    {"user": f"u{row % 5}", "item": 'é\n"[,]{}' if row == 3 else row, "rating": row / 2, "tags": [{"a": 1}]}
    for row in range(20)
]
LAYOUTS = [{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False, "indent": 4}]


def test_an_array_is_read_as_its_objects(tmp_path, source):
    expected = ingest(
        source("a.jsonl", "".join(json.dumps(each) + "\n" for each in OBJECTS)),
        tmp_path / "lines",
        value="rating",
    )
    first, spread, close, plain = (json.dumps(OBJECTS, **layout).encode() for layout in LAYOUTS)
    contents = [
        first,
        b"\xef\xbb\xbf \r\n" + spread.replace(b"\n", b"\r\n"),
        gzip.compress(close),
        pa.Codec("zstd").compress(plain, asbytes=True),
    ]
    for case, (name, content) in enumerate(zip(["a.json", "a", "b", "a.json.zst"], contents, strict=True)):
        dataset = ingest(source(name, content), tmp_path / f"{case}", value="rating")
        assert dataset.digest == expected.digest
        assert dataset.vocabulary("items").all_ids() == expected.vocabulary("items").all_ids()


def test_lists_in_an_array_and_objects_that_are_skipped(tmp_path, source):
    path = source(
        "a.json", '[{"user": 1, "item": ["a", "b"]}, {"user": 2, "item": "c"}, {"user": 3, "item": []}]'
    )
    assert ingest(path, tmp_path / "ds", skip_bad_lines=1).ids(slice(None)) == ["1", "3"]


@pytest.mark.parametrize("characters", [1, 2, 7])
def test_an_array_is_read_in_pieces(source, monkeypatch, characters):
    monkeypatch.setattr(json_array, "_BLOCK_CHARACTERS", characters)
    path = source("a", ' [ {"a": [1, 2]} ,12, 345,"x"\n,\n{}\n]\n')
    assert list(json_array.elements(TextFile(path))) == ['{"a": [1, 2]}', "12", "345", '"x"', "{}"]
