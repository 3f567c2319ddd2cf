"""The flags of commands, made from the arguments that the library declares."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, get_args, get_origin

import typer

from widenet.arguments import IN_STORES, Argument, declared, must_be_local
from widenet.errors import OptionError
from widenet.runs.run_arguments import LoadArguments

_Command = TypeVar("_Command", bound=Callable[..., Any])

_WORDS: tuple[type, ...] = (int, float, str, Path)
"""Types that typer converts a text to."""


_SEVERAL = ("--items", "--data-files", "--input-files")


class SeveralWords(typer.core.TyperCommand):
    """A command some of whose options take several words: --items A B C."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat such an option before each word."""
        words: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-"):
                option = word.partition("=")[0]
            elif option in _SEVERAL and words[-1] != option:
                words.append(option)
            words.append(word)
        return super().parse_args(ctx, words)


def pairs(option: str, form: str, texts: Sequence[str]) -> dict[str, str]:
    """Read texts of the form NAME=VALUE, in order.

    Args:
        option: Name of the argument.
        form: "FIELD=COLUMN", for the message; the part before "=" is the name. With "[NAME=]COLUMN" a text
            without a name is its own.
        texts: The texts.

    Raises:
        OptionError: A text does not have the form, or a name occurs twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if form.startswith("[") and not sign and "," not in text:
            sign, value = "=", name
        if not (name and sign and value) or name in values:
            rule = f"must be {form}, each {form.strip('[').partition('=')[0].lower()} once"
            raise OptionError(rule, option=option, value=text)
        values[name] = value
    return values


def conditions(option: str, form: str, texts: Sequence[str]) -> dict[str, bool | list[str]]:
    """Read texts of the form NAME, which means true, or NAME=VALUE, whose values of a name are listed.

    Args:
        option: Name of the argument.
        form: "ATTRIBUTE[=VALUE]", for the message.
        texts: The texts.

    Raises:
        OptionError: A text has no name, or a name comes both with a value and without.
    """
    values: dict[str, bool | list[str]] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        before = values.get(name, [] if sign else True)
        if not name or isinstance(before, bool) == bool(sign):
            raise OptionError(f"must be {form}, each in one form", option=option, value=text)
        values[name] = True if isinstance(before, bool) else [*before, value]
    return values


def with_flags_of(*owners: type) -> Callable[[_Command], _Command]:
    """Give a command the arguments that dataclasses declare: it receives them as keywords.

    They come after the command's own required parameters and before its optional ones.
    """

    def of(command: _Command) -> _Command:
        own = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in signature(command).parameters.values()
            if parameter.kind != Parameter.VAR_KEYWORD
        ]
        flags = [flag for owner in owners for flag in _flags_of(owner)]
        required = [parameter for parameter in own if parameter.default is Parameter.empty]
        optional = [parameter for parameter in own if parameter not in required]
        parameters = [*required, *flags, *optional]
        command.__annotations__ |= {parameter.name: parameter.annotation for parameter in parameters}
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return command

    return of


def _flags_of(owner: type) -> list[Parameter]:
    """The parameters of a command, one for every argument of a dataclass that has a flag.

    A required argument is a flag, or a word without a flag if it has a form.
    """
    defaults = {name: parameter.default for name, parameter in signature(owner).parameters.items()}
    known = {name: each for name, each in declared(owner).items() if each[1].flag != ""}
    parameters = []
    for name, (kind, argument) in known.items():
        text = argument.help
        for other, (_, named) in known.items():
            text = text.replace(f"`{other}`", f"`--{_flag(other, named)}`")
        parameters.append(_parameter(name, kind, replace(argument, help=text), defaults[name]))
    return parameters


def _flag(name: str, argument: Argument) -> str:
    return argument.flag or name.replace("_", "-")


def option(owner: type, name: str) -> Any:
    """The flag of one argument of a dataclass, for a command that does not take all of them."""
    kind, argument = declared(owner)[name]
    is_required = signature(owner).parameters[name].default is Parameter.empty
    return _option(name, kind, argument, is_required and argument.form is not None)


def values_of(owner: type, words: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the values of the flags of `with_flags_of` to the library's types; raises OptionError."""
    return {
        name: _value(name, kind, argument, words[name])
        for name, (kind, argument) in declared(owner).items()
        if name in words
    }


def _parameter(name: str, kind: Any, argument: Argument, default: Any) -> Parameter:
    is_word = default is Parameter.empty and argument.form is not None
    if argument.is_repeated or (is_word and NoneType in _alternatives(kind)):
        default = None
    read: Any = _read_as(kind, argument)
    marks = [] if must_be_local(kind) else [IN_STORES]
    annotation = Annotated[read, *marks, _option(name, kind, argument, is_word)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(name: str, kind: Any, argument: Argument, is_word: bool) -> Any:
    """The flag of an argument: with a negative if it may be unset, and without a value if it is a switch."""
    text = argument.help
    if is_word:
        return typer.Argument(help=text, metavar=argument.form)
    flag = _flag(name, argument)
    flags = [f"-{flag}", f"--{flag}"] if len(flag) == 1 else [f"--{flag}"]
    if bool in _alternatives(kind) and NoneType in _alternatives(kind):
        flags = [f"--{flag}/--no-{flag}"]
    if argument.is_repeated:
        text = f"{text.removesuffix('.')}; may be given several times."
    # typer checks lower bounds; the library words both bounds together.
    low = None if argument.at_most is not None else argument.at_least
    return typer.Option(*flags, help=text, metavar=argument.form, min=low)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The members of a union, or the one type."""
    kind = kind.__origin__ if get_origin(kind) is Annotated else kind
    return get_args(kind) if get_args(kind) and get_origin(kind) not in (Sequence, Mapping) else (kind,)


def _read_as(kind: Any, argument: Argument) -> Any:
    """The type that typer reads.

    A list is read as text with commas, a dictionary as a list of NAME=VALUE, and a quoted type, such as a
    dataset, as its path.
    """
    kinds = _alternatives(kind)
    plain = [member for member in kinds if member in _WORDS]
    if bool in kinds:
        return kind
    read: Any
    if any(get_origin(member) is Literal for member in get_args(kind)) or get_origin(kind) is Literal:
        return kind
    if Path in plain or any(isinstance(member, ForwardRef) for member in kinds):
        read = Path
    elif argument.is_repeated or any(get_origin(member) is Mapping for member in kinds):
        return list[str] | None
    else:
        read = plain[0] if len(plain) == 1 else str
    return read | None if NoneType in kinds or kind is Any else read


def _value(name: str, kind: Any, argument: Argument, word: Any) -> Any:
    if argument.is_repeated:
        return word or []
    kinds, form = _alternatives(kind), argument.form or ""
    listed = next((each for each in kinds if get_origin(each) in (Mapping, Sequence)), None)
    if Path in kinds or listed is None:
        return word
    if get_origin(listed) is Sequence:
        return word.split(",") if word else None
    if "VALUE" in form:
        return conditions(name, form, word or []) or None
    texts, of = pairs(name, form.partition(",")[0], word or []), get_args(listed)[1]
    if of is int:
        return {key: whole_number(name, text) for key, text in texts.items()} or None
    return {key: text.split(",") for key, text in texts.items()} if get_origin(of) is Sequence else texts


def whole_number(option: str, text: str, most: float = math.inf) -> int:
    """Read a whole number, at least 1 if `most` bounds it; raises OptionError."""
    try:
        number = int(text)
    except ValueError:
        raise OptionError("must be a whole number", option=option, value=text) from None
    if most < math.inf and not 1 <= number <= most:
        raise OptionError(f"must be 1 to {most:,}", option=option, value=text)
    return number


Run = Annotated[Path, IN_STORES, option(LoadArguments, "run")]
Device = Annotated[str | None, option(LoadArguments, "device")]
IncludeSeen = Annotated[
    bool, typer.Option("--include-seen", help="Also recommend items that the user already has.")
]
IndexFiles = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[SET=]FILE",
        help="Index file with the names of the features, of all sparse data sets; SET=FILE for one.",
    ),
]
"""Options that several commands have."""


def index_files(texts: Sequence[str]) -> dict[str, Path] | Path | None:
    """Read --features: index files by data set, or one file for all; raises OptionError for a mixture."""
    if len(texts) == 1 and "=" not in texts[0]:
        return Path(texts[0])
    return {name: Path(path) for name, path in pairs("features", "SET=FILE", texts).items()} or None
