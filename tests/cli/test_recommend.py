"""`widenet recommend` loads only what a person's recommendations take."""

import json
import subprocess
import sys

import pytest

LOADED = """
import json, sys
from widenet.cli import main
for line in json.loads(sys.argv[1]):
    try:
        main(line)
    except SystemExit as ended:
        print(ended.code or 0, file=sys.stderr)
    print(*sorted({"duckdb", "numba", "pandas", "scipy", "torch"} & set(sys.modules)), file=sys.stderr)
"""
"""Runs command lines, and says after each how it ended and what has been loaded."""


def ended(inside, lines):
    """Standard output and standard error of command lines in one process, line by line."""
    command = [sys.executable, "-c", LOADED, json.dumps(lines)]
    found = subprocess.run(command, cwd=inside, capture_output=True, text=True, check=True)
    return found.stdout.splitlines(), found.stderr.splitlines()


def test_recommendations_load_torch_alone_of_the_slow_libraries(inside):
    items = ["0", "the hobbit", "hobbit"]
    shown, said = ended(inside, [["recommend", "run", "--items", item, "-k", "2"] for item in items])
    assert len(shown) == 2 * len(items)
    assert [line for line in said if line in ("0", "torch")] == ["0", "torch"] * len(items)
    assert said[-1] == "torch"


MISTAKES = [
    "recommend nowhere --items 0",
    "recommend data --items 0",
    "recommend run",
    "recommend run --data data",
    "evaluate nowhere --data data",
    "evaluate run --data nowhere",
    "predict nowhere --data data --out new.csv",
    "predict run --data nowhere --out new.csv",
    "fingerprint nowhere",
    "train nowhere.json training.json --data data --out new",
    "train network.json training.json --data nowhere --out new",
    "train training.json network.json --data data --out new",
]


def test_a_mistake_is_told_before_torch_is_loaded(inside):
    _, said = ended(inside, [line.split() for line in MISTAKES])
    for line, message, status, loaded in zip(MISTAKES, said[::3], said[1::3], said[2::3], strict=True):
        assert message.startswith("widenet: "), line
        assert status == "2", line
        assert loaded in ("", "pandas"), line  # pyarrow loads pandas


@pytest.mark.parametrize(("k", "said"), [(8, False), (9, True)])
def test_a_list_that_is_shorter_than_asked_for_says_so(k, said, widenet, world):
    found = widenet("recommend", world / "run", "--items", "0", "-k", k)
    assert len(found.out.splitlines()) == 8
    shown = [line for line in found.err.splitlines() if line.startswith("-k")]
    assert shown == ["-k asks for 9 items; only 8 are left to recommend."] * said
