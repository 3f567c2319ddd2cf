"""Programs that are measured take turns, each in its own process, and one that fails does not stop the
others.
"""

import argparse
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import catalogue, commands, device
from benchmarks.__main__ import parser
from benchmarks.alternately import Measured, Program, measure
from benchmarks.device import Step
from benchmarks.published import Rows, compared, tables_of
from benchmarks.results import Table, processor
from benchmarks.synthetic import draw_interactions
from tests.scripts import Script


def program(name, function="writing", libraries=(), **arguments):
    return Program(name, f"tests.toys:{function}", arguments, libraries)


def test_programs_take_turns_in_one_direction_and_then_in_the_other(tmp_path):
    programs = [program(name, path=str(tmp_path / "steps"), letter=name) for name in "AB"]
    found = measure(programs, rounds=2, turn_seconds=0.0, warmup=0)
    assert (tmp_path / "steps").read_text() == "AB" + "AB" + "BA"
    assert [len(measured.seconds) for measured in found] == [2, 2]
    assert found[0].first["loss"] == 1.5
    assert found[0].facts["peak_bytes"] > 2**20


BROKEN = {
    "greedy": (program("greedy", "greedy"), r"needs more than [\d.]+ GB"),
    "dying": (program("dying", "dying"), "ended with status 3"),
    "nowhere": (
        program("nowhere", "nowhere"),
        "AttributeError: module 'tests.toys' has no attribute 'nowhere'",
    ),
    "missing": (
        program("missing", "greedy", libraries=["no-such-library"]),
        "no-such-library is not installed",
    ),
}


def test_programs_that_fail_say_why_and_the_others_go_on(tmp_path):
    sound = program("sound", path=str(tmp_path / "steps"), letter="S")
    found = measure([*(broken for broken, _ in BROKEN.values()), sound], rounds=1, turn_seconds=0.0, warmup=0)
    problems = [problem for _, problem in BROKEN.values()]
    for measured, problem in zip(found, problems, strict=False):
        assert re.fullmatch(problem, measured.problem)
    assert found[-1].problem is None
    assert [len(measured.seconds) for measured in found] == [0] * len(BROKEN) + [1]


def test_a_row_gives_the_ratio_of_turns_of_the_same_round():
    ours, theirs = Measured(program("ours"), [1.0, 2.0, 4.0]), Measured(program("theirs"), [3.0, 4.0, 4.0])
    table = Table("three rounds", ["program", "ratio", "ms"])
    table.add(theirs, ours)
    assert table.rows == [["theirs", "2.00 (1.50 to 2.50)", "4,000.0 (3,500.0 to 4,000.0)"]]


TESTS = """
import pytest

def test_right(): pass
def test_wrong(): assert 1 == 2
@pytest.mark.skip(reason="no device")
def test_left_out(): pass
"""


def outcomes(steps, folder, monkeypatch, seconds=120.0):
    monkeypatch.setitem(device.STEPS, "try", steps)
    monkeypatch.setattr(device, "LIMIT_SECONDS", seconds)
    monkeypatch.setattr(sys, "argv", ["device", "try", str(folder)])
    with pytest.raises(SystemExit) as ended:
        device.main()
    written = json.loads((folder / "device-try.json").read_text())["steps"]
    assert all(
        f"| {step['name']} | {step['status']} |" in (folder / "device-try.md").read_text() for step in written
    )
    return ended.value.code, written


def test_tests_are_counted_and_the_others_go_on(tmp_path, monkeypatch):
    for name, text in (("mixed", TESTS), ("skipped", TESTS.partition("def test_right")[0])):
        (tmp_path / f"test_{name}.py").write_text(text)
    (tmp_path / "test_skipped.py").write_text(
        "import pytest\npytestmark = pytest.mark.skip\ndef test_it(): pass\n"
    )
    words = ["pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    steps = [Step(name, [*words, str(tmp_path / f"test_{name}.py")]) for name in ("mixed", "skipped")]
    status, found = outcomes([*steps, Step("here", ["this"])], tmp_path / "out", monkeypatch)
    assert status == 1
    assert [step["status"] for step in found] == ["failed", "skipped", "passed"]
    assert found[0]["counts"] == {"tests": 3, "failed": 1, "skipped": 1}
    assert found[0]["failed"] == ["test_mixed.test_wrong"]
    assert "assert 1 == 2" in found[0]["output"]


PAGE = """#### Steps

| program | time | ms |
|---|---|---|
| widenet | 1.00 (0.9 to 1.1) | 1,200.0 |
| rival | 2.00 | - |
| gone | 3.00 | 5 |

Processor: A (family 1), 2 threads.

| program | time | ms |
|---|---|---|
| widenet | 7.00 | 8 |

Processor: B, 2 threads.
"""


def test_rows_are_compared_with_the_page_by_title_and_processor():
    cells = {"widenet": ["1.00 (0.9 to 1.1)", "600.0"], "rival": ["2.00", "-"], "other": ["4", "4"]}
    columns = ["program", "time", "ms"]
    assert [(one.processor, len(one.cells)) for one in tables_of(PAGE)] == [("A (family 1)", 3), ("B", 1)]
    assert list(compared([Rows("Steps", columns, cells, "A (family 1)")], PAGE)) == [
        "Steps: widenet: ms 600.0, before 1,200.0 (-50 %)",
        "Steps: rival: unchanged",
        "Steps: other: new",
        "Steps: gone: not printed by this run",
    ]
    assert list(compared([Rows("Steps", columns, cells, "C")], PAGE)) == [
        "Steps: new for C; known are A (family 1), B"
    ]
    assert list(compared([Rows("Steps", ["program"], cells, "A")], PAGE)) == ["Steps: new"]
    printed = Table("Steps", columns, [["widenet", "1", "2"]])
    (found,) = tables_of(str(printed))
    assert (found.title, found.columns, found.cells) == ("Steps", columns, {"widenet": ["1", "2"]})
    assert found.processor == processor()


@pytest.mark.parametrize(("users", "items", "per_user"), [(300, 1000, 20), (300, 40, 5), (50, 5000, 150)])
def test_generated_interactions_have_every_user_and_item_and_none_twice(users, items, per_user):
    half = users // 2
    blocks = [
        draw_interactions(block, users, items, len(block) * per_user)
        for block in (range(half), range(half, users))
    ]
    user, item = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    pairs = set(zip(user.tolist(), item.tolist(), strict=True))
    assert len(user) == len(pairs) == users * per_user
    assert (set(user.tolist()), set(item.tolist())) == (set(range(users)), set(range(items)))
    again = draw_interactions(range(half, users), users, items, (users - half) * per_user)
    assert all(map(np.array_equal, again, blocks[1]))
    assert np.mean(user % 20 == item % 20) > 0.1


def test_the_catalogue_is_ingested_trained_and_recommended_from(tmp_path, monkeypatch, capsys):
    """Its commands run in copies of a process that has loaded widenet, whose figures nobody measures."""

    def forked(line, folder):
        assert line[:3] == [sys.executable, "-m", "widenet"]
        script = Script("from widenet.cli import main; main()", folder / "said", words=line[3:], cwd=folder)
        said, complained = script.communicate()
        assert script.returncode == 0, said + complained
        shutil.rmtree(folder / "said")
        return commands.Ran(1.5, 2.5, 10**9, 10**6)

    monkeypatch.setattr(catalogue, "measured", forked)
    asked = argparse.Namespace(
        items=400,
        users=300,
        interactions=6000,
        recommended=30,
        batch=16,
        sample=64,
        folder=tmp_path,
        out=tmp_path,
    )
    catalogue.run(asked)
    (table,) = json.loads((tmp_path / "catalogue.json").read_text("utf-8"))["tables"]
    names = ["ingest", "one epoch, sampled softmax", "ingest for recommendations"]
    assert [row[0] for row in table["rows"]] == [*names, "recommendations for 30 users"]
    share, _, said = table["notes"][-1].partition(" ")
    assert said.startswith("of the recommendations are of the user's group")
    assert 0 <= float(share) < 0.5
    assert [row[1:-1] for row in table["rows"]] == [["1.5", "2.5", "1.00", "0.00"]] * 4
    assert str(table["notes"][-1]) in capsys.readouterr().out
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".md"]


def test_every_benchmark_that_a_page_names_has_these_options():
    folders = ("docs", "benchmarks/results", "examples/*")
    pages = [Path("README.md"), *(page for folder in folders for page in Path().glob(f"{folder}/*.md"))]
    texts = [page.read_text("utf-8").replace("\\\n", " ") for page in pages]
    lines = [line for text in texts for line in re.findall(r"python -m benchmarks([^`\n#]*)", text)]
    named = [shlex.split(line) for line in lines]  # as a shell does: names of sets may have blanks
    assert len(named) > 60
    for words in [words for words in named if words[:1] != ["NAME"]]:
        parser().parse_args(words)
