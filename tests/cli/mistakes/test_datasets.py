"""Datasets that are not as they were written, and places that cannot be written to: one sentence, and
nothing is left behind.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.older import dataset_of_format_1
from tests.scripts import Conversation

FILE_BYTES = 600
"""Less than a dataset takes."""

RESTORE = "Restore the file, or ingest again."
WHOLE = {
    "a newer version": (
        {"format_version": 3},
        "format_version must be at most 2; got 3. Update widenet, or ingest again with this one.",
    ),
    "a version below 1": (
        {"format_version": 0},
        f"format_version: Input should be greater than or equal to 1; got 0. {RESTORE}",
    ),
    "a version in quotes": (
        {"format_version": "1"},
        f"format_version must be a whole number; got '1'. {RESTORE}",
    ),
    "2^31 examples": (
        {"num_examples": 2**31},
        f"num_examples must be what the files hold, 12; got 2,147,483,648. {RESTORE}",
    ),
    "examples below 0": (
        {"num_examples": -1},
        f"num_examples: Input should be greater than or equal to 0; got -1. {RESTORE}",
    ),
    "an unknown key": ({"extra": 1}, f"extra: Extra inputs are not permitted; got 1. {RESTORE}"),
    "no fields": (
        {"fields": {}},
        f"fields: Dictionary should have at least 1 item after validation, not 0; got {{}}. {RESTORE}",
    ),
    "no files": ({"files": {}}, f"num_examples must be what the files hold, 0; got 12. {RESTORE}"),
}
"""Changes of dataset.json, and what is said of it."""

FIELD = {
    "a width beyond 2^32": (
        {"width": 2**40},
        f"width: Input should be less than or equal to 4294967296; got 1099511627776. {RESTORE}",
    ),
    "a width below 1": (
        {"width": -3},
        f"width: Input should be greater than or equal to 1; got -3. {RESTORE}",
    ),
    "a width in quotes": ({"width": "9"}, f"width: Input should be a valid integer; got '9'. {RESTORE}"),
    "an unknown kind": (
        {"kind": "spars"},
        f"kind: Input should be 'sparse', 'dense' or 'sequence'; got 'spars'. {RESTORE}",
    ),
    "entries below 0": (
        {"num_entries": {"train": -1}},
        f"num_entries.train: Input should be greater than or equal to 0; got -1. {RESTORE}",
    ),
}
"""The same of its field."""

TEXTS = {
    "an open brace": b"{",
    "nothing": b"",
    "no UTF-8": b"\xff",
    "deep nesting": b"[" * 100_000,
    "a number of 5,000 digits": b'{"format_version": ' + b"9" * 5000 + b"}",
}
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


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("wrong", [*WHOLE, *FIELD])
def test_a_wrong_manifest_is_one_sentence(line, wrong, manifest, refused):
    change, said = WHOLE.get(wrong) or FIELD[wrong]
    way = "" if wrong in WHOLE else "fields__items__"
    dataset_of_format_1(manifest.parent, **{way + key: value for key, value in change.items()})
    assert (
        refused(line) == f"widenet: bad/data/dataset.json: {'' if wrong in WHOLE else 'fields.items.'}{said}"
    )


@pytest.mark.parametrize("wrong", TEXTS)
def test_a_manifest_that_is_no_json_is_one_sentence(wrong, manifest, refused):
    manifest.write_bytes(TEXTS[wrong])
    said = refused("data verify bad/data")
    assert said.startswith("widenet: bad/data/dataset.json: must be JSON; ")
    assert said.endswith(RESTORE)


@pytest.mark.parametrize("name", ["examples-00000.arrow", "items.vocabulary.arrow"])
def test_every_flipped_byte_of_a_dataset_is_found(name, manifest, refused):
    path = manifest.with_name(name)
    whole = path.read_bytes()
    for position in range(0, len(whole), 97):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        said = refused("data verify bad/data")
        assert said.startswith(f"widenet: bad/data/{name}: ")
        assert said.endswith(
            f"must have the SHA-256 of dataset.json; it changed. {RESTORE.replace('the file', 'it')}"
        )


@pytest.mark.parametrize("line", ["data describe bad/data", "predict run --data bad/data --out out.csv"])
def test_a_flipped_byte_of_the_examples_is_found_by_every_command_that_reads_them(
    line, manifest, widenet, desk
):
    path = manifest.with_name("examples-00000.arrow")
    whole = path.read_bytes()
    for position in range(1, len(whole), 41):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        ended = widenet(*line.split())
        assert (ended.status, (desk / "out.csv").exists()) == (2, False), position
        assert ended.err.splitlines()[-1].startswith("widenet: bad/data/examples-00000.arrow: "), ended.err


@pytest.mark.parametrize(
    ("change", "what"),
    [(Path.unlink, "listed in dataset.json but missing"), (lambda path: os.truncate(path, 9), "must have ")],
)
def test_a_file_that_is_gone_or_cut_off_is_one_sentence(change, what, manifest, refused):
    change(manifest.with_name("examples-00000.arrow"))
    for line in COMMANDS:
        assert refused(line).startswith(f"widenet: bad/data/examples-00000.arrow: {what}")


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


def test_a_full_disk_is_said_of_the_dataset_that_was_to_be_split(desk):
    before = sorted(desk.iterdir())
    assert limited("data", "split", "whole", "--out", "split", "--heldout", "0.25") == (
        2,
        "",
        "widenet: split cannot be written: File too large. Free some space, or choose another place.\n",
    )
    assert sorted(desk.iterdir()) == before
