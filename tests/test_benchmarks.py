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

from benchmarks import catalogue, commands
from benchmarks.__main__ import parser
from benchmarks.alternately import Measured, Program, measure
from benchmarks.results import Table
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
    known = parser()
    for words in [words for words in named if words[:1] != ["NAME"]]:
        known.parse_args(words)
