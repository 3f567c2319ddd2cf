"""Only files of a finite size are opened, and only lines of a bounded length are read."""

import io
import os
from pathlib import Path

import pytest

from widenet import regular_files
from widenet.errors import DataError, DocumentError
from widenet.regular_files import bounded_lines, check_regular


def test_pipes_and_devices_are_refused_unopened(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # without a writer: opening it would wait forever
    with pytest.raises(DataError):
        check_regular(tmp_path / "pipe")
    with pytest.raises(DocumentError):
        check_regular(Path("/dev/zero"), DocumentError)


def test_lines_keep_their_ends_and_a_long_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(regular_files, "LONGEST_LINE_BYTES", 4)
    assert list(bounded_lines(io.BytesIO(b"abc\nde\n\nf"), tmp_path)) == [b"abc\n", b"de\n", b"\n", b"f"]
    lines = bounded_lines(io.StringIO("abc\nabcde\n"), tmp_path)
    assert next(lines) == "abc\n"
    with pytest.raises(DataError):
        next(lines)
