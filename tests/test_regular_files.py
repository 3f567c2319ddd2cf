"""Only lines of a bounded length are read."""

import io

import pytest

from widenet import regular_files
from widenet.errors import DataError
from widenet.regular_files import bounded_lines


def test_lines_keep_their_ends_and_a_long_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(regular_files, "LONGEST_LINE_BYTES", 4)
    assert list(bounded_lines(io.BytesIO(b"abc\nde\n\nf"), tmp_path)) == [b"abc\n", b"de\n", b"\n", b"f"]
    lines = bounded_lines(io.StringIO("abc\nabcde\n"), tmp_path)
    assert next(lines) == "abc\n"
    with pytest.raises(DataError):
        next(lines)
