"""The flags of commands, made from the arguments that the library declares."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ForwardRef, TypeVar, get_args, get_origin

import typer

from widenet.arguments import Argument, declared
from widenet.cli.options import pairs
from widenet.cli.wording import on_command_line

_Command = TypeVar("_Command", bound=Callable[..., Any])

_WORDS: tuple[type, ...] = (int, float, str, Path)
"""Types that typer converts a text to."""


def with_flags_of(owner: type) -> Callable[[_Command], _Command]:
    """Give a command the arguments that a dataclass declares: it receives them as keywords.

    They come after the command's own required parameters and before its optional ones. Arguments with a
    parameter of their own in the command are left to it.
    """

    def of(command: _Command) -> _Command:
        own = [each for each in signature(command).parameters.values() if each.kind != Parameter.VAR_KEYWORD]
        own = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
        taken = {each.name for each in own}
        flags = [flag for flag in flags_of(owner) if flag.name not in taken]
        required = [each for each in own if each.default is Parameter.empty]
        parameters = [*required, *flags, *(each for each in own if each not in required)]
        command.__annotations__ |= {each.name: each.annotation for each in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command

    return of


def flags_of(owner: type) -> list[Parameter]:
    """The parameters of a command, one for every argument that a dataclass declares.

    A required argument is a flag, or a word without a flag if it has a form.
    """
    defaults = signature(owner).parameters
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=defaults[name].default,
            annotation=Annotated[
                _read_as(kind), _option(name, kind, argument, defaults[name].default is Parameter.empty)
            ],
        )
        for name, (kind, argument) in declared(owner).items()
    ]


def values_of(owner: type, words: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the values of the flags of `flags_of` to the library's types; raises OptionError."""
    return {
        name: _value(name, kind, argument, words[name])
        for name, (kind, argument) in declared(owner).items()
        if name in words
    }


def _option(name: str, kind: Any, argument: Argument, is_required: bool) -> Any:
    """The flag of an argument: with a negative if it may be unset, and without a value if it is a switch."""
    if is_required and argument.form is not None:
        return typer.Argument(help=on_command_line(argument.help), metavar=argument.form)
    flag = name.replace("_", "-")
    flags = []
    if bool in _alternatives(kind):
        flags = [f"--{flag}/--no-{flag}" if NoneType in _alternatives(kind) else f"--{flag}"]
    return typer.Option(*flags, help=on_command_line(argument.help), metavar=argument.form)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    return get_args(kind) if get_args(kind) and get_origin(kind) not in (Sequence, Mapping) else (kind,)


def _read_as(kind: Any) -> Any:
    """The type that typer reads.

    A list is read as text with commas, a dictionary as a list of NAME=VALUE, and a quoted type, such as a
    dataset, as its path.
    """
    kinds = _alternatives(kind)
    if any(get_origin(member) is Mapping for member in kinds):
        return list[str] | None
    if bool in kinds:
        return kind
    plain = [member for member in kinds if member in _WORDS]
    if Path in plain or any(isinstance(member, ForwardRef) for member in kinds):
        read: Any = Path
    else:
        read = plain[0] if len(plain) == 1 else str
    return read | None if NoneType in kinds or kind is Any else read


def _value(name: str, kind: Any, argument: Argument, word: Any) -> Any:
    for member in _alternatives(kind):
        if get_origin(member) is Mapping:
            texts = pairs(f"--{name.replace('_', '-')}", (argument.form or "").partition(",")[0], word or [])
            is_list = get_origin(get_args(member)[1]) is Sequence
            return {key: text.split(",") for key, text in texts.items()} if is_list else texts
        if get_origin(member) is Sequence:
            return word.split(",") if word else None
    return word
