"""Datasets that are not as they were written, and places that cannot be written to: one sentence, and
nothing is left behind.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.mistakes import mistake
from tests.older import dataset_of_format_1
from tests.scripts import Conversation
from widenet.errors import CheckpointError, DataError

FILE_BYTES = 600
"""Less than a dataset takes."""

CHANGES = [
    {"format_version": 3},
    {"format_version": 0},
    {"format_version": "1"},
    {"num_examples": 2**31},
    {"num_examples": -1},
    {"extra": 1},
    {"fields": {}},
    {"files": {}},
    {"fields__items__width": 2**40},
    {"fields__items__width": -3},
    {"fields__items__width": "9"},
    {"fields__items__kind": "spars"},
    {"fields__items__num_entries": {"train": -1}},
]
"""Changes of dataset.json."""
MANIFEST = "bad/data/dataset.json"

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


def test_a_wrong_manifest_is_refused(manifest, refused):
    whole = manifest.read_bytes()
    for change in CHANGES:
        dataset_of_format_1(manifest.parent, **change)
        with mistake(DataError, MANIFEST):
            raise refused("data verify bad/data")
        manifest.write_bytes(whole)


@pytest.mark.parametrize("change", [Path.unlink, lambda path: os.truncate(path, 9)])
def test_a_file_that_is_gone_or_cut_off_is_refused(change, manifest, refused):
    change(manifest.with_name("examples-00000.arrow"))
    for line in COMMANDS:
        with mistake(DataError, "bad/data/examples-00000.arrow"):
            raise refused(line)


def test_a_damaged_run_is_refused(world, desk, refused):
    shutil.copytree(world / "run", desk / "bad" / "run")
    weights = desk / "bad" / "run" / "model" / "trunk.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with mistake(CheckpointError, "bad/run/model/trunk.safetensors"):
        raise refused("fingerprint bad/run")


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
