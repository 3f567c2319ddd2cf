"""Datasets that are not as they were written, and places that cannot be written to: one sentence, and
nothing is left behind.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.mistakes import mistake
from tests.scripts import Conversation
from widenet.errors import DataError

FILE_BYTES = 600
"""Less than a dataset takes."""


COMMANDS = [
    "data verify bad/data",
    "data describe bad/data",
    "train network.json training.json --data bad/data --out OUT",
]


@pytest.fixture
def manifest(world, desk):
    """The manifest of a copy of the data in `bad`."""
    shutil.copytree(world / "data", desk / "bad" / "data")
    return desk / "bad" / "data" / "dataset.json"


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 9)])
def test_a_file_that_is_gone_or_cut_off_is_refused(change, manifest, refused):
    change(manifest.with_name("examples-00000.arrow"))
    for line in COMMANDS:
        with mistake(DataError, "bad/data/examples-00000.arrow"):
            raise refused(line)


LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # it would be cut off
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
from widenet.cli import main
main(sys.argv[1:])
"""
"""Runs a command line where files cannot grow, as on a disk that is full."""


def limited(*words):
    """What such a command in this process's current directory gives: its status, output and errors."""
    process = Conversation(words, LIMITED.format(size=FILE_BYTES))
    said = process.communicate()
    return process.returncode, *said


def test_a_full_disk_leaves_no_half_written_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"user-{row % 97},item-{row % 89}\n" for row in range(5000))
    (tmp_path / "likes.csv").write_text(f"user,item\n{rows}")
    status, out, err = limited("data", "ingest", "likes.csv", "--out", "data")
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("widenet: ")
    assert "File too large" in err.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["likes.csv"]
