"""Only files of a finite size are opened, and only lines of a bounded length are read."""

import io
import os
from pathlib import Path

import pytest

from widenet import regular_files
from widenet.errors import DataError, DocumentError
from widenet.regular_files import bounded_lines, check_regular


@pytest.fixture
def pipe(tmp_path):
    """A named pipe without a writer: opening it would wait forever."""
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


def test_pipes_and_devices_are_refused_unopened(pipe):
    with pytest.raises(DataError, match="pipe must be a file; it is a pipe or a device"):
        check_regular(pipe)
    with pytest.raises(DocumentError, match=r"^/dev/zero must be a file"):
        check_regular(Path("/dev/zero"), DocumentError)


def test_a_link_to_itself_is_one_sentence(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    check_regular(tmp_path / "loop")  # pathlib says that it does not exist


def test_files_folders_and_missing_paths_are_left_to_whoever_reads_them(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file", tmp_path / "missing"):
        check_regular(path)


def test_lines_keep_their_ends_and_a_long_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(regular_files, "LONGEST_LINE_BYTES", 4)
    assert list(bounded_lines(io.BytesIO(b"abc\nde\n\nf"), tmp_path)) == [b"abc\n", b"de\n", b"\n", b"f"]
    lines = bounded_lines(io.StringIO("abc\nabcde\n"), tmp_path)
    assert next(lines) == "abc\n"
    with pytest.raises(DataError, match="line 2 must have at most 4 bytes"):
        next(lines)
