"""The README is short, its file tree and links are true, and its commands exist."""

import shlex
from pathlib import Path

import pytest

from tests.commands import blocks, commands, complaint, relative_links

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")

MAX_LINES = 150


def tree_names() -> list[str]:
    """The first level of the block that begins with "widenet/"; deeper lines are indented further."""
    lines = next(block for language in ("", "text") for block in blocks(README, language) if block.startswith("widenet/")).splitlines()[1:]
    indents = [len(line) - len(line.lstrip()) for line in lines]
    return [line.split()[0] for line, indent in zip(lines, indents, strict=True) if line.strip() and indent == indents[0]]


def test_it_is_short():
    assert len(README.splitlines()) < MAX_LINES


def test_its_file_tree_lists_exactly_what_is_there():
    there = [path.name + "/" * path.is_dir() for path in (ROOT / "widenet").iterdir() if not path.name.startswith(("_", "."))]
    assert sorted(tree_names()) == sorted(set(there) - {"py.typed"})


def test_every_relative_link_leads_somewhere():
    assert [target for target in relative_links(README) if not (ROOT / target).exists()] == []


def test_every_command_and_option_exists():
    shown = [words for block in blocks(README, "bash") for words in commands(block)]
    assert shown, "the README shows at least one command"
    assert {shlex.join(words): complaint(words) for words in shown if complaint(words)} == {}


@pytest.mark.parametrize("line", ["widenet trian a.json", "widenet --no-such-option", "cat x | .venv/bin/widenet train --no-such-option=1"])
def test_a_command_or_option_that_does_not_exist_is_seen(line):
    assert [complaint(words) is None for words in commands(line)] == [False]


def test_commands_are_found_among_comments_continuations_variables_and_pipes():
    text = "# widenet is small\nA=1 widenet train a.json \\\n  --out runs/a  # slow\npip install widenet\nwidenet plan b.json | head -3"
    assert commands(text) == [["train", "a.json", "--out", "runs/a"], ["plan", "b.json"]]
