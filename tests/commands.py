"""What the tests of the README and of docs/ share: fenced blocks, links, and the commands that are shown."""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import typer.main

from widenet.cli import app

COMMAND_ENDS = {"|", "&&", "||", ";", "&", "<", ">", ">>"}


class Fence(NamedTuple):
    """A fenced block: its language ("" if it names none), the file that it is ("" if none), and what
    stands in it.
    """

    language: str
    title: str
    body: str


def fences(text: str) -> list[Fence]:
    """The fenced blocks of a page, in their order."""
    return [
        Fence(*found)
        for found in re.findall(
            r'^```(\w*)(?: title="([^"\n]+)")?\n(.*?)^```$', text, re.MULTILINE | re.DOTALL
        )
    ]


def blocks(text: str, language: str) -> list[str]:
    """What stands in the fenced blocks of one language; "" for blocks that name none."""
    return [fence.body for fence in fences(text) if fence.language == language]


def relative_links(text: str) -> list[str]:
    """Where the links lead that do not leave the repository, without their anchors."""
    return [
        target.split("#")[0]
        for target in re.findall(r"\]\(([^)\s]+)\)", text)
        if not re.match(r"[a-z]+:|#", target)
    ]


def shell_words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    return list(lexer)


def commands(text: str) -> list[list[str]]:
    """The words after each "widenet" that begins a shell command or follows its variables, up to a pipe or
    a redirection.
    """
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


@cache
def program() -> Any:
    """The command `widenet`."""
    return typer.main.get_command(app)


def every_command() -> list[tuple[str, Any]]:
    """All commands and groups of commands, with the words that call them."""
    found: list[tuple[str, Any]] = [("widenet", program())]
    for name, command in found:
        inner = getattr(command, "commands", {}).items()
        found += [(f"{name} {word}", whole(each)) for word, each in inner]
    return found


def whole(command: Any) -> Any:
    """A command, imported if it is one of an extension."""
    return getattr(command, "whole", command)


def resolved(words: list[str]) -> tuple[Any, list[str]]:
    """The command that some words call, and the words after its name."""
    command: Any = program()
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command, words = whole(command.commands[words[0]]), words[1:]
    return command, words


def complaint(words: list[str]) -> str | None:
    """What `--help` does not know of a command: its name, or its first unknown option."""
    command, rest = resolved(words)
    if hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        return f"no command {rest[0]!r}"
    known = {
        "--help",
        *(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)),
    }
    return next(
        (
            f"no option {word!r}"
            for word in rest
            if word.startswith("-") and word != "-" and word.split("=")[0] not in known
        ),
        None,
    )
