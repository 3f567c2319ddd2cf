"""A new project is complete: its Makefile runs from data to recommendations, its README explains its
documents.
"""

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.commands import blocks, commands, complaint
from widenet.cli import main
from widenet.errors import OptionError
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.starter import start

WIDENET = """#!/bin/sh
printf '%s\\n' "$@" > "$0.words"
exit "$(cat "$0.status")"
"""
"""A `widenet` whose commands the test runs: it reads their words and gives their exit status."""


def alone():
    """The environment without what a make that runs the tests tells its own."""
    return {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }


def make(folder, *words):
    return subprocess.run(
        ["make", *words], cwd=folder, env=alone(), capture_output=True, text=True, check=True
    ).stdout


def make_here(folder, widenet):
    """Run make, and `widenet` in this process."""
    words, status = Path(f"{widenet}.words"), Path(f"{widenet}.status")
    widenet.write_text(WIDENET)
    widenet.chmod(0o700)
    for pipe in (words, status):
        os.mkfifo(pipe)
    line = f"make 'WIDENET={widenet}'; status=$?; : > '{words}'; exit $status"
    with subprocess.Popen(["sh", "-c", line], cwd=folder, env=alone()) as process:
        while asked := words.read_text("utf-8"):
            with contextlib.chdir(folder), pytest.raises(SystemExit) as ended:
                main(asked.splitlines())
            status.write_text(str(ended.value.code or 0))
    assert process.returncode == 0


def names(values):
    """The names of all fields in a document, however deep."""
    if isinstance(values, list):
        return {name for each in values for name in names(each)}
    return (
        {name for key, value in values.items() for name in (key, *names(value))}
        if isinstance(values, dict)
        else set()
    )


def test_make_goes_from_data_to_recommendations_and_does_nothing_twice(tmp_path, capsys):
    start(tmp_path / "mine")
    (tmp_path / "mine" / "training.json").write_text('{"epochs": 1}')
    make_here(tmp_path / "mine", tmp_path / "widenet")
    assert "over 500 users" in capsys.readouterr().out
    assert len((tmp_path / "mine" / "runs" / "first.csv").read_text().splitlines()) == 1 + 500 * 10
    assert make(tmp_path / "mine", "--dry-run").splitlines() == [
        "widenet evaluate runs/first --data data/split -k 20"
    ]
    make(tmp_path / "mine", "clean")
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {
        path.name for path in start(tmp_path / "other")
    }


def test_make_goes_on_with_a_training_that_was_cut_short(tmp_path):
    start(tmp_path / "mine")
    assert "--resume" not in make(tmp_path / "mine", "--dry-run")
    (tmp_path / "mine" / "runs" / "first" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "runs" / "first" / "checkpoints" / "latest").touch()
    assert "--out runs/first --resume" in make(tmp_path / "mine", "--dry-run")


def test_the_documents_are_valid_and_the_readme_explains_each_of_their_fields(tmp_path):
    start(tmp_path / "mine")
    NetworkSpec.read(tmp_path / "mine" / "network.json")
    TrainingSpec.read(tmp_path / "mine" / "training.json")
    readme = (tmp_path / "mine" / "README.md").read_text("utf-8")
    for document in ("network.json", "training.json"):
        fields = names(json.loads((tmp_path / "mine" / document).read_text("utf-8")))
        assert len(fields) > 5
        assert [name for name in fields if f"`{name}`" not in readme] == []


def test_the_commands_that_the_project_shows_exist(tmp_path):
    start(tmp_path / "mine")
    makefile = make(tmp_path / "mine", "--dry-run", "all", "plan")
    readme = "".join(blocks((tmp_path / "mine" / "README.md").read_text("utf-8"), "bash"))
    shown = [*commands(makefile), *commands(readme)]
    assert {words[0] for words in shown} == {"data", "plan", "train", "evaluate", "predict", "recommend"}
    assert [complaint(words) for words in shown if complaint(words)] == []


def test_the_command_quotes_a_folder_for_a_shell(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["new", "my books"])
    assert capsys.readouterr().out.splitlines()[-1] == "Next: cd 'my books', then make"


def test_the_command_names_the_files_and_refuses_a_folder_that_exists(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for status in (None, 2):
        with pytest.raises(SystemExit) as ended:
            main(["new", "mine"])
        assert ended.value.code == status
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == "Next: cd mine, then make"
    assert "mine/.gitignore" in out
    assert err == "widenet: mine must not exist yet; it does. Choose another name.\n"
    assert (tmp_path / "mine" / "README.md").read_text("utf-8").startswith("# mine\n")


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match=r"inside cannot be made: Not a directory\. Choose another name\."):
        start(tmp_path / "file" / "inside")


def test_the_name_of_a_project_may_be_no_text(tmp_path):
    start(tmp_path / os.fsdecode(b"a\xff"))
    assert "a\ufffd" in (tmp_path / os.fsdecode(b"a\xff") / "README.md").read_text("utf-8")
