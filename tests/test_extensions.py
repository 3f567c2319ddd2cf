"""A stranger's distribution, installed offline, adds a form of documents and commands."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.scripts import Conversation
from widenet.data.lists import dataset_from_lists
from widenet.extensions import COMMANDS, DOCUMENTS, NETWORKS, extensions, loaded

ROOT = Path(__file__).parent.parent
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "stranger"
version = "1"

[project.entry-points."widenet.commands"]
greet = "stranger.extension:GREET"
many = "stranger.extension:MANY"
damaged = "stranger.nowhere:APP"

[project.entry-points."widenet.documents"]
stranger = "stranger.documents"

[tool.setuptools]
packages = ["stranger"]
"""
EXTENSION = """
from widenet.extensions import Command

GREET = Command("Greet somebody", "stranger.commands:greet")
MANY = Command("Several commands", "stranger.commands:app")
"""
COMMANDS_FILE = '''
import typer
from widenet.errors import DataError

app = typer.Typer(help="Several commands.")


def greet(name: str, loud: bool = False) -> None:
    """Greet somebody by name."""
    typer.echo(name.upper() if loud else name)


@app.command()
def fail() -> None:
    """Fail."""
    raise DataError("stranger.txt: no such file.")


@app.command()
def other() -> None:
    """Do nothing."""


'''
DOCUMENTS_FILE = """
from widenet.extensions import Translated


def plain(text):
    return text.removeprefix("# stranger")


def owns(values):
    return isinstance(values, dict) and "units of the stranger" in values


def translated(values, where):
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "h", "units": values["units of the stranger"]},
        {"name": "out", "kind": "output", "field": "items"},
    ]
    return Translated({"layers": layers}, [f"{where} is a stranger."])
"""


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """A folder into which the distribution is installed."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    (source / "stranger").mkdir()
    (source / "pyproject.toml").write_text(PROJECT)
    files = {"__init__": "", "extension": EXTENSION, "commands": COMMANDS_FILE, "documents": DOCUMENTS_FILE}
    for name, text in files.items():
        (source / "stranger" / f"{name}.py").write_text(text)
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return target


COPIED = """
import sys
from widenet.cli import main
from widenet.extensions import extensions
sys.path.insert(0, {!r})
extensions.cache_clear()
main()
"""
"""`widenet` in a copy of a process that has looked for extensions before the stranger was installed."""


@pytest.fixture
def run(stranger, tmp_path, monkeypatch):
    """Runs a command line where the stranger is installed."""
    monkeypatch.chdir(tmp_path)

    def command(*words):
        process = Conversation(words, COPIED.format(str(stranger)))
        out, err = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return command


def test_its_commands_are_listed_explained_and_called(run):
    listed = " ".join(run("--help").stdout.split())
    assert "greet Greet somebody" in listed
    assert "many Several commands" in listed
    assert run("greet", "ann", "--loud").stdout == "ANN\n"
    failed = run("many", "fail")
    assert (failed.returncode, failed.stderr) == (2, "widenet: stranger.txt: no such file.\n")


def test_its_documents_are_read_wherever_a_network_is(run, tmp_path):
    dataset_from_lists(tmp_path / "data", [[0, 1], [1, 2]], width=3)
    (tmp_path / "network.json").write_text('# stranger\n{"units of the stranger": 2}')
    (tmp_path / "training.json").write_text('{"epochs": 1, "shards": 1}')
    ended = run("train", "network.json", "training.json", "--data", "data", "--out", "run", "--device", "cpu")
    assert ended.returncode == 0, ended.stderr
    document = json.loads((tmp_path / "run" / "network.json").read_text())
    assert [layer["name"] for layer in document["layers"]] == ["in", "h", "out"]


@pytest.mark.parametrize("group", [DOCUMENTS, NETWORKS])
def test_a_damaged_extension_leaves_the_others(group, monkeypatch):
    own = loaded(group)
    damaged = EntryPoint("a", "nowhere.at_all", group)
    monkeypatch.setattr("widenet.extensions.extensions", lambda _: {"a": damaged, **extensions(group)})
    with pytest.warns(UserWarning, match="nowhere"):
        assert loaded(group) == own


OWN = {COMMANDS: {"dsstne"}, DOCUMENTS: {"dsstne"}, NETWORKS: {"caffe", "dsstne", "keras", "onnx"}}


@pytest.mark.parametrize("group", OWN)
def test_widenet_has_its_own_extensions_from_its_checkout_and_where_it_is_installed(group, monkeypatch):
    monkeypatch.setattr("widenet.extensions._of_checkout", lambda _: None)
    assert OWN[group] <= set(extensions.__wrapped__(group))
    monkeypatch.undo()
    monkeypatch.setattr("widenet.extensions.entry_points", lambda **_: [])
    assert set(extensions.__wrapped__(group)) == OWN[group]
