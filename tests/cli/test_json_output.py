"""`--json`: every command that prints a result has it, and prints one document as docs/json.md shows it."""

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import every_command, fences
from widenet.cli.output import print_json

PAGE = (Path(__file__).parent.parent.parent / "docs" / "json.md").read_text("utf-8")
EXAMPLES = {fence.title: json.loads(fence.body) for fence in fences(PAGE) if fence.language == "json"}
"""The documents that the page shows, by command."""
EXAMPLES["data extreme"] = [EXAMPLES["data ingest"]]
EXAMPLES["train"] = {"report": "", **EXAMPLES["runs"]["runs"][0]}
del EXAMPLES["train"]["differences"]

WITHOUT = {
    "widenet demo": "tells a story",
    "widenet schema": "prints JSON anyway",
    "widenet serve": "answers over HTTP",
    "widenet ui": "shows pages",
    "widenet knn search": "prints a JSON line for each query, which need not fit into memory",
}
"""Why a command has no --json."""

LINES = {
    "data ingest": "likes.csv --out new",
    "data extreme": "points.txt --out new",
    "data split": "whole --out new --heldout 0.2",
    "data describe": "data",
    "data verify": "data",
    "plan": "network.json training.json --data data",
    "train": "network.json training.json --data data --out new",
    "tune": "space.json --data data --out tuned --trials 2 --rungs 1",
    "evaluate": "run --data data -k 20",
    "compare": "run run --data data -k 20",
    "recommend": "run --items Hobbit -k 2",
    "predict": "run --data data --out new.csv",
    "report": "run --out new.html",
    "runs": ".",
    "knn like": "run Hobbit -k 2",
    "quantize": "run --out new",
    "fingerprint": "run",
    "export": "run --out new.onnx",
    "import": "run.nc --out new",
}
"""The words after a command, in a copy of the world."""


@pytest.fixture
def copied(world, tmp_path, monkeypatch):
    """A copy of the world as the current directory."""
    shutil.copytree(world, tmp_path / "world")
    documents = {kind: json.loads((world / f"{kind}.json").read_text()) for kind in ("network", "training")}
    documents["training"] |= {"batch_size": {"from": [3, 4]}, "evaluation": {"metric": "ndcg@5"}}
    (tmp_path / "world" / "space.json").write_text(json.dumps(documents))
    (tmp_path / "world" / "points.txt").write_text("2 3 2\n0,1 0:1 2:0.5\n1 1:2\n")
    monkeypatch.chdir(tmp_path / "world")
    return tmp_path / "world"


def test_every_command_that_prints_a_result_prints_json():
    lacking = {
        name
        for name, command in every_command()
        if not hasattr(command, "commands")
        and not any("--json" in parameter.opts for parameter in command.params)
    }
    assert {name for name in lacking if not name.startswith("widenet dsstne ")} == set(WITHOUT)


def test_every_command_with_json_is_run_and_shown_by_the_page():
    having = {
        name.removeprefix("widenet ")
        for name, command in every_command()
        if any("--json" in parameter.opts for parameter in getattr(command, "params", ()))
    }
    assert having - {"data fetch"} == set(LINES)
    unnamed = {name for name in having if f"`widenet {name}`" not in PAGE and f"`{name}`" not in PAGE}
    assert unnamed == set()


def names(value):
    """The names of an object, or of the objects in a list."""
    return set(value[0]) if isinstance(value, list) else set(value)


@pytest.mark.parametrize("command", LINES)
@pytest.mark.usefixtures("copied")
def test_standard_output_is_one_document_with_the_names_of_the_page(command, widenet):
    if command == "import":
        assert widenet("dsstne", "export-model", "run", "run.nc").status == 0
    ended = widenet(*command.split(), *LINES[command].split(), "--json")
    assert ended.status == 0, ended.err
    result = json.loads(ended.out)
    shown = EXAMPLES["data ingest" if command in ("data split", "data verify") else command]
    assert type(result) is type(shown)
    assert names(result) == names(shown)


def test_the_published_data_are_a_list(widenet):
    listed = json.loads(widenet("data", "fetch", "--list", "--json").out)
    assert "movielens-1m" in {known["name"] for known in listed}


def test_numbers_are_unrounded_and_texts_as_they_are(capsys):
    print_json({"a": 0.1 + 0.2, "b": [float("inf"), float("nan")], "c": Path("x") / "\u00fc", 3: (1, None)})
    assert json.loads(capsys.readouterr().out) == {
        "a": 0.30000000000000004,
        "b": [None, None],
        "c": "x/\u00fc",
        "3": [1, None],
    }
