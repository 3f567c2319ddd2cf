"""The pages that teach can be followed to the end, and show what is printed."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import fences
from tests.scale_page import begin, lines
from widenet.cli import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
TOLERANCE = 0.1
"""How far a decimal number may be from the one that is shown: another processor rounds otherwise. All else
must be equal.
"""


def pieces(line):
    """The words and whole numbers of a line, and its decimal numbers."""
    return re.sub(r"\d+\.\d+|\s+", " ", line).split(), [
        float(found) for found in re.findall(r"\d+\.\d+", line)
    ]


def is_shown(line, out):
    words, numbers = pieces(line)
    return any(
        words == there and numbers == pytest.approx(found, rel=TOLERANCE)
        for there, found in map(pieces, out.splitlines())
    )


def run(line):
    """Run a line of a page in this process: a command of widenet, or a script that the page has shown."""
    program, *words = shlex.split(line)
    if program == "python":
        runpy.run_path(*words, run_name="__main__")
        return
    assert program == "widenet", f"this test cannot run: {line}"
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code in (0, None), line


def follow(text, capsys):
    """Do what a page says in the current directory: write its files, run its commands, compare its output."""
    out = ""
    for fence in fences(text):
        if fence.title:
            Path(fence.title).write_text(fence.body, "utf-8")
        elif fence.language == "bash":
            for line in fence.body.splitlines():
                run(line)
            out = capsys.readouterr().out
        elif fence.language == "python":
            exec(compile(fence.body, "page", "exec"), {})
        else:
            assert fence.language == "text", fence
            assert [line for line in fence.body.splitlines() if not is_shown(line, out)] == [], out


@pytest.mark.parametrize("page", ["tutorial.md", pytest.param("recipes.md", marks=pytest.mark.slow)])
def test_a_guide_can_be_followed(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    follow((DOCS / page).read_text("utf-8"), capsys)


def changed(text, diff):
    """A text after a unified diff, wherever in it the lines are."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE)[1:]:
        old, new = (
            "".join(line[1:] for line in hunk.splitlines(keepends=True) if line[0] != sign) for sign in "+-"
        )
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


ADDING = {
    "adding-an-activation.md": (["widenet/spec/activations.py", "widenet/model/activations.py"], ""),
    "adding-a-loss.md": (["widenet/spec/losses.py", "widenet/model/losses.py"], "linear or softmax"),
    "adding-an-optimizer.md": (["widenet/spec/optimizers.py", "widenet/kernels/steps.py"], ""),
    "adding-a-layer.md": (
        ["widenet/spec/layers.py", "widenet/model/layers/gated.py", "widenet/model/layers/__init__.py"],
        "",
    ),
}
"""The files of the package that each page changes, no more, and a choice of its tests."""


def add(page, folder):
    """Change a copy of the repository as a page shows; the test files of its command, and its word."""
    files, _ = ADDING[page]
    shown = fences((DOCS / page).read_text("utf-8"))
    changes = [fence for fence in shown if fence.title]
    (command,) = [fence for fence in shown if fence.language == "bash"]
    assert [change.title for change in changes if change.title.startswith("widenet/")] == files
    for change in changes:
        path = folder / change.title
        path.write_text(
            changed(path.read_text("utf-8"), change.body) if change.language == "diff" else change.body,
            "utf-8",
        )
    python, *words = shlex.split(command.body)
    assert [python, *words[:2], words[-2]] == ["python", "-m", "pytest", "-k"]
    return words[2:-2], words[-1]


@pytest.mark.slow
def test_something_can_be_added_as_shown(tmp_path):
    for folder in ("widenet", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder)  # with what has been compiled
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    added = {page: add(page, tmp_path) for page in ADDING}
    paths = [path for paths, _ in added.values() for path in paths]
    choices = [f"({what} and ({ADDING[page][1] or what}))" for page, (_, what) in added.items()]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *paths, "-k", " or ".join(choices)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    for _, what in added.values():
        assert re.search(rf"^tests/.*{what}.* PASSED", ended.stdout, re.MULTILINE), ended.stdout


@pytest.mark.slow
def test_the_example_of_scale_has_one_fingerprint_on_one_process_several_a_disk_and_torchrun(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    begin(tmp_path)
    beside = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    first, *others = lines("torchrun")
    assert first == ["python", "make_data.py"]
    for program, *words in others:
        if program == "torchrun":
            subprocess.run([program, *words], env=environment, capture_output=True, check=True)
            continue
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*words, "--json"] if words[0] == "runs" else words)
        assert ended.value.code in (0, None), words
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert sorted(run["name"] for run in listed) == ["disk", "four", "one", "torchrun"]
    assert len({run["fingerprint"] for run in listed}) == 1
