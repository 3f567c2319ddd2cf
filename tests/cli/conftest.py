"""What the tests of the command line share: calls in this process, and a small world made by them."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from widenet.cli import main

NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 4, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
TRAINING = {"epochs": 2, "batch_size": 4, "shards": 2, "evaluation": {"metric": "recall@3"}}


@dataclass
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


@pytest.fixture
def widenet(capsys, monkeypatch):
    """Runs a command line in this process."""
    monkeypatch.setenv("WIDENET_DEBUG", "")

    def run(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        code = ended.value.code
        out, err = capsys.readouterr()
        return Ended(0 if code is None else code, out, err)

    return run


@pytest.fixture
def launched(monkeypatch):
    """What the launcher is asked for, which starts nothing: numbers of processes, and command lines."""
    asked = []
    monkeypatch.setattr("widenet.parallel.launch.launch", lambda *words: asked.append(words) or (0, None))
    return asked


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """A folder with a CSV file of interactions, titles, documents, datasets and a trained run.

    Not to be written to.
    """
    folder = tmp_path_factory.mktemp("world")
    lines = [
        f"u{user},{item}"
        for user in range(12)
        for item in range(9)
        if (user + item) % 2 == 0 or item == user % 9
    ]
    (folder / "likes.csv").write_text("user,item\n" + "\n".join(lines) + "\n")
    (folder / "titles.csv").write_text(
        "item,title\n"
        + "".join(
            f"{item},The {name}\n" for item, name in enumerate(["Hobbit", "B", "C", "Red", "Reed", *"FGHI"])
        )
    )
    (folder / "network.json").write_text(json.dumps(NETWORK))
    (folder / "training.json").write_text(json.dumps(TRAINING))
    here = Path.cwd()
    os.chdir(folder)
    try:
        for line in (
            "data ingest likes.csv --out whole --titles titles.csv",
            "data split whole --out data --heldout 0.25 --validation 0.25",
            "train network.json training.json --data data --out run",
        ):
            with pytest.raises(SystemExit) as ended:
                main(line.split())
            assert ended.value.code in (0, None), line
    finally:
        os.chdir(here)
    return folder


@pytest.fixture
def inside(world, monkeypatch):
    """The world, as the current directory."""
    monkeypatch.chdir(world)
    return world


def listing(folder):
    """Every file and folder, links not followed, with what a file holds."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def desk(world, tmp_path, monkeypatch):
    """The current directory: links to what the world holds, and a folder `bad`."""
    for path in world.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "bad").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(world, desk, capsys, monkeypatch):
    """Runs a command line that must end with status 2 and leave everything as it was; returns the error.

    Before its sentence stand phases, each ending in "...", and nothing else.
    """
    monkeypatch.setenv("WIDENET_DEBUG", "")

    def run(line):
        before = listing(world), listing(desk)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(line.split(" "))
        out, err = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        *phases, sentence = err.splitlines()
        assert sentence.startswith("widenet: ")
        assert [each for each in phases if not each.endswith("...")] == []
        assert (listing(world), listing(desk)) == before
        return ended.value.__context__

    return run
