"""The README is short, its file tree and links are true, and its commands exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from widenet.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")

MAX_LINES = 150
COMMAND_ENDS = {"|", "&&", "||", ";", "&", "<", ">", ">>"}


def blocks(language: str) -> list[str]:
    """What stands in the fenced blocks of one language; "" for blocks that name none."""
    return [block for found, block in re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL) if found == language]


def tree_names() -> list[str]:
    """The first level of the block that begins with "widenet/"; deeper lines are indented further."""
    lines = next(block for language in ("", "text") for block in blocks(language) if block.startswith("widenet/")).splitlines()[1:]
    indents = [len(line) - len(line.lstrip()) for line in lines]
    return [line.split()[0] for line, indent in zip(lines, indents, strict=True) if line.strip() and indent == indents[0]]


def shell_words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    return list(lexer)


def commands(text: str) -> list[list[str]]:
    """The words after each "widenet" that begins a shell command or follows its variables, up to a pipe or a redirection."""
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        command: list[str] = []
        for word in [*shell_words(line), ";"]:
            if word in COMMAND_ENDS:
                found.append(command)
                command = []
            elif command or not re.match(r"\w+=", word):
                command.append(word)
    return [command[1:] for command in found if command and Path(command[0]).name == "widenet"]


def complaint(words: list[str]) -> str | None:
    """What `--help` does not know of a command: its name, or its first unknown option."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    known = {"--help", *(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))}
    return next((f"no option {word!r}" for word in words if word.startswith("-") and word.split("=")[0] not in known), None)


def test_it_is_short():
    assert len(README.splitlines()) < MAX_LINES


def test_its_file_tree_lists_exactly_what_is_there():
    there = [path.name + "/" * path.is_dir() for path in (ROOT / "widenet").iterdir() if not path.name.startswith(("_", "."))]
    assert sorted(tree_names()) == sorted(set(there) - {"py.typed"})


def test_every_relative_link_leads_somewhere():
    targets = [target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", README) if not re.match(r"[a-z]+:|#", target)]
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_command_and_option_exists():
    shown = [words for block in blocks("bash") for words in commands(block)]
    assert shown, "the README shows at least one command"
    assert {shlex.join(words): complaint(words) for words in shown if complaint(words)} == {}


@pytest.mark.parametrize("line", ["widenet trian a.json", "widenet --no-such-option", "cat x | .venv/bin/widenet train --no-such-option=1"])
def test_a_command_or_option_that_does_not_exist_is_seen(line):
    assert [complaint(words) is None for words in commands(line)] == [False]


def test_commands_are_found_among_comments_continuations_variables_and_pipes():
    text = "# widenet is small\nA=1 widenet train a.json \\\n  --out runs/a  # slow\npip install widenet\nwidenet plan b.json | head -3"
    assert commands(text) == [["train", "a.json", "--out", "runs/a"], ["plan", "b.json"]]
