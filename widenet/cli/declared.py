"""Flags made of the arguments that the library declares, and their values in the library's types."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import typer

from widenet.arguments import Argument, declared
from widenet.cli.options import pairs
from widenet.cli.wording import on_command_line

_WORDS: tuple[type, ...] = (int, float, str, Path)
"""Types that typer reads from a word."""


def flags_of(owner: Callable[..., Any]) -> list[Parameter]:
    """The parameters of a command: one for every argument that a function or a dataclass declares."""
    defaults = signature(owner).parameters
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=defaults[name].default,
            annotation=Annotated[_read_as(kind), _option(name, kind, argument)],
        )
        for name, (kind, argument) in declared(owner).items()
    ]


def values_of(owner: Callable[..., Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags of `flags_of` were given, as the library takes it. Raises OptionError."""
    kinds = declared(owner)
    return {name: _value(name, kinds[name][0], kinds[name][1], word) for name, word in words.items()}


def _option(name: str, kind: Any, argument: Argument) -> Any:
    """Its flag: with a negative where it may be left open, and without a value where it is a switch."""
    flag = name.replace("_", "-")
    flags = []
    if bool in _alternatives(kind):
        flags = [f"--{flag}/--no-{flag}" if NoneType in _alternatives(kind) else f"--{flag}"]
    return typer.Option(*flags, help=on_command_line(argument.help), metavar=argument.form)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types that a union holds, or the one type."""
    return get_args(kind) if get_args(kind) and get_origin(kind) not in (Sequence, Mapping) else (kind,)


def _read_as(kind: Any) -> Any:
    """The type that typer reads: of a list its names with commas, of a dictionary a list of NAME=VALUE."""
    kinds = _alternatives(kind)
    if any(get_origin(each) is Mapping for each in kinds):
        return list[str] | None
    if bool in kinds:
        return kind
    plain = [each for each in kinds if each in _WORDS]
    read = plain[0] if plain and (len(plain) == 1 or plain[0] is Path) else str
    return read | None if NoneType in kinds or kind is Any else read


def _value(name: str, kind: Any, argument: Argument, word: Any) -> Any:
    for each in _alternatives(kind):
        if get_origin(each) is Mapping:
            given = pairs(f"--{name.replace('_', '-')}", (argument.form or "").partition(",")[0], word or [])
            is_list = get_origin(get_args(each)[1]) is Sequence
            return {key: value.split(",") for key, value in given.items()} if is_list else given
        if get_origin(each) is Sequence:
            return word.split(",") if word else None
    return word
