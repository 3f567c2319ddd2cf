"""Messages of the library, with flags and commands instead of arguments and calls.

A message of the library names an option as Python does, in backticks: `skip_bad_lines`, `keep_times=True`,
`widenet.split('books', out=DIR)`. The command line prints --skip-bad-lines, --keep-times and
`widenet data split books --out DIR`.
"""

import ast
import re
import shlex
from collections.abc import Callable

import typer

_OPTION = re.compile(r"(?<![`\w])`([a-z]\w*)(?:=([^`]+))?`")
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*"|\'`[^`]*`\')')
"""Quoted text: a user's own, which may look like an option."""
_CALL = re.compile(r"(?<=`)widenet\.(\w+)\(([^`]*)\)(?=`)|(?<=\")widenet\.(\w+)\(([^`\"]*)\)(?=\")")
_COMMANDS = {"ingest": "data ingest", "split": "data split"}
"""Commands whose name differs from that of the function."""
_FLAGS = {"start_from": "from", "fields": "field", "file_format": "format", "attributes_of": "attributes"}
"""Flags whose name differs from that of the argument."""
_PLAIN = re.compile(r"[\w.,:/=-]+")


def on_command_line(sentence: str) -> str:
    """Return a sentence with the flags and the commands in place of arguments and calls."""
    sentence = _CALL.sub(lambda call: _command(call[1] or call[3], call[2] if call[1] else call[4]), sentence)
    pieces = _QUOTED.split(sentence)
    pieces[::2] = [_OPTION.sub(lambda option: _flag(option[1], option[2]), piece) for piece in pieces[::2]]
    return "".join(pieces)


def say(sentence: str, words: Callable[[str], str] = on_command_line) -> None:
    """Print a sentence of the library to standard error, its options rendered by `words`."""
    typer.echo(in_one_line(words(sentence)), err=True)


def in_one_line(text: str) -> str:
    """Return a text with escapes in place of control characters, such as those of a file's name."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def flag_name(name: str) -> str:
    """The flag of an argument, without its dashes."""
    return _FLAGS.get(name, name).replace("_", "-")


def _flag(name: str, value: str | None) -> str:
    """A flag, with the value of a Python literal if there is one."""
    flag = flag_name(name)
    if value in (None, "True"):
        return f"--{flag}"
    return f"--no-{flag}" if value == "False" else f"--{flag} {_word(value)}"


def _command(name: str, arguments: str) -> str:
    """The command that is equivalent to a call."""
    try:
        call = ast.parse(f"call({arguments})", mode="eval").body
    except SyntaxError:
        return f"widenet.{name}({arguments})"
    assert isinstance(call, ast.Call)
    words = [_word(ast.unparse(argument)) for argument in call.args]
    flags = [_flag(str(keyword.arg), ast.unparse(keyword.value)) for keyword in call.keywords]
    return " ".join(["widenet", _COMMANDS.get(name, name), *words, *flags])


def _word(value: str) -> str:
    """A Python literal as a word of the shell, quoted if necessary."""
    try:
        text = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    if isinstance(text, dict):
        return shlex.quote(",".join(f"{name}={one}" for name, one in text.items()))
    if not isinstance(text, str):
        return value
    quoted = shlex.quote(text)
    return text if _PLAIN.fullmatch(text) else quoted if quoted != text else f"'{text}'"
