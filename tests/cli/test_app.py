"""The application: help everywhere, quick to start, and every mistake one line, status 2, nothing
half-written.
"""

import re
import signal
import subprocess
import sys

import pytest
import typer.main

from tests.commands import whole
from tests.scripts import Conversation
from widenet.cli import app


def commands(command=None, words=()):
    """The words of every command and group."""
    command = whole(command or typer.main.get_command(app))
    yield list(words)
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_explains_itself(words, widenet):
    ended = widenet(*words, "-h")
    assert (ended.status, "Usage:" in ended.out) == (0, True)


@pytest.mark.parametrize(
    "code",
    [
        "import widenet",
        "import sys; sys.argv = ['widenet', '--help']; import widenet.__main__; widenet.__main__.main()",
    ],
)
def test_starting_loads_nothing_heavy(code):
    heavy = ("torch", "pyarrow", "duckdb", "pydantic", "numpy", "tensorboard", "safetensors")
    code = (
        f"import atexit, sys\natexit.register(lambda: print([name for name in {heavy} if name in"
        f" sys.modules], file=sys.stderr))\n{code}"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "[]\n")


def test_debug_shows_where_an_error_came_from(widenet, world, monkeypatch):
    monkeypatch.chdir(world)
    line = ["train", "nowhere.json", "training.json", "--data", "data", "--out", "other"]
    assert widenet(*line).status == 2
    ended = widenet("--debug", *line)
    assert ended.status == 2
    assert ended.err.startswith("Traceback (most recent call last):\n")
    assert ended.err.splitlines()[-1].startswith("widenet: nowhere.json: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_an_interrupted_command_leaves_nothing_half_written(number, tmp_path):
    rows = "".join(f"{row // 100},{row * 7919 % 9973}\n" for row in range(2_000_000))
    (tmp_path / "many.csv").write_text(f"user,item\n{rows}")
    command = [sys.executable, *["-m", "widenet", "data", "ingest", "many.csv", "--out", "data"]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # A shell's background commands ignore Ctrl-C.
    pipes["preexec_fn"] = lambda: signal.signal(number, signal.SIG_DFL)
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as process:
        first = process.stderr.readline()
        process.send_signal(number)
        rest = process.communicate()
    assert first.endswith("...\n")
    assert (process.returncode, rest[0], rest[1].splitlines()[-1]) == (130, "", "widenet: interrupted.")
    assert [path.name for path in tmp_path.iterdir()] == ["many.csv"]


LIMITED = """
import resource, sys
sys.dont_write_bytecode = True  # it would be cut off
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
from widenet.cli import main
main(sys.argv[1:])
"""
"""Runs a command line where files cannot grow, as on a disk that is full."""


def test_a_full_disk_leaves_no_half_written_dataset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"user-{row % 97},item-{row % 89}\n" for row in range(5000))
    (tmp_path / "likes.csv").write_text(f"user,item\n{rows}")
    process = Conversation(["data", "ingest", "likes.csv", "--out", "data"], LIMITED)
    out, err = process.communicate()
    assert (process.returncode, out) == (2, "")
    assert re.match("widenet: .*File too large", err.splitlines()[-1])
    assert [path.name for path in tmp_path.iterdir()] == ["likes.csv"]
