"""`widenet runs`: a line for each run and its differences below, and what is wrong beside it."""

import json
import os
import shutil

import pytest


@pytest.fixture
def runs(world, tmp_path):
    """A folder with two runs that differ, and a folder of something else."""
    for name in ("first", "second"):
        shutil.copytree(world / "run", tmp_path / "runs" / name)
    document = json.loads((tmp_path / "runs" / "second" / "training.json").read_text())
    (tmp_path / "runs" / "second" / "training.json").write_text(json.dumps({**document, "epochs": 5}))
    (tmp_path / "runs" / "foreign").mkdir()
    return tmp_path / "runs"


def test_every_run_has_a_line_and_its_differences_below(runs, widenet):
    ended = widenet("runs", runs, "--sort", "name")
    lines = ended.out.splitlines()
    digest = widenet("fingerprint", runs / "first").out.strip()
    assert ended.status == 0
    assert [line.split()[0] for line in lines] == [
        "run", "first", "training.epochs=2", "second", "training.epochs=5",
    ]  # fmt: skip
    assert lines[1].split()[1:4] == ["finished", "2/2", "recall@3"]
    assert f" on validation  {digest[:12]}  " in lines[1]
    assert lines[3].split()[2] == "2/5"
    assert ended.err.startswith(str(runs / "foreign"))


def test_names_are_printed_without_control_characters_and_the_time_is_utc(runs, widenet):
    (runs / "first").rename(runs / "fi\nrst\x1b[2J")
    (runs / "foreign").rename(runs / "for\x1beign")
    ended = widenet("runs", runs)
    assert any(line.startswith(r"fi\nrst\x1b[2J  ") for line in ended.out.splitlines())
    assert r"for\x1beign is not a run" in ended.err
    assert "\x1b" not in ended.out + ended.err
    os.utime(runs / "second" / "network.json", (0, 0))
    os.utime(runs / "second" / "log.jsonl", (0, 1.5))
    listed = json.loads(widenet("runs", runs / "second", "--json").out)["runs"]
    assert [run["changed"] for run in listed] == ["1970-01-01T00:00:01.500000Z"]
