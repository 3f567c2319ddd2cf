"""Type checks for the arguments of public functions: a wrong one raises ArgumentError before any work."""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, update_wrapper, wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from widenet.errors import ArgumentError, OptionError, did_you_mean
from widenet.stores.uri import check_local

if TYPE_CHECKING:  # every start of the command line loads this module
    import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])
_P = ParamSpec("_P")
_Fields = TypeVar("_Fields")
_Result = TypeVar("_Result")
_Self = TypeVar("_Self")

_KINDS: dict[Any, tuple[tuple[type, ...], str, str]] = {
    str: ((str,), "a text", "texts"),
    bool: ((bool,), "True or False", "True or False"),
    int: ((Integral,), "a whole number", "whole numbers"),
    float: ((Real,), "a number", "numbers"),
    Path: ((os.PathLike,), "a path", "paths"),
    NoneType: ((NoneType,), "None", "None"),
}
"""For each plain type: the classes that match it, and its name in the singular and in the plural."""

_OPTIONS = {"include_seen": "exclude_seen=False"}
"""Command-line options that Python writes as another argument."""

_OTHER_FUNCTIONS = {
    ("split", "heldout_users"): "widenet.split_users(..., users=SHARE)",
    ("split", "users_out"): "widenet.split_users(..., users_out=DIR)",
}
"""Command-line options that are arguments of another function in Python, by function and option."""

_IN_STORES = {
    ("Dataset.open", "path"),
    ("Model.load", "run"),
    ("compare", "first"),
    ("compare", "second"),
    ("dataset_from_lists", "path"),
    ("describe", "folder"),
    ("ingest", "out"),
    ("ingest", "vocabulary"),
    ("split", "out"),
    ("train", "out"),
    ("train", "start_from"),
    ("write_report", "runs"),
}
"""Arguments that may be URIs of object stores, by function; so may all datasets to read. Other paths must be
local."""

_LONGEST_SHOWN = 60


@dataclass(frozen=True)
class Argument:
    """Purpose and bounds of an argument: `seed: Annotated[int, Argument("Start.", at_least=0)] = 0`.

    The docstring of the function, the flag of the command line and its help come from it.

    Attributes:
        help: A sentence, with other arguments in backticks.
        form: Placeholder of the value in a list of flags.
        at_least: Smallest value.
        at_most: Largest value; needs `at_least`.
        choices: The values that the command line offers, if these are not all.
        flag: Name of the flag, if it is not that of the argument; an empty text if there is no flag.
        is_repeated: Whether the flag may be given several times, for a list; otherwise commas part a list.
    """

    help: str
    form: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    flag: str | None = None
    is_repeated: bool = False


def declared(owner: type) -> dict[str, tuple[Any, Argument]]:
    """The types and the `Argument` of those fields of a class that have one; resolves no quoted type."""
    annotations = {
        name: annotation
        for kind in reversed(owner.__mro__)
        for name, annotation in inspect.get_annotations(kind).items()
    }
    return {
        name: (annotation.__origin__, argument)
        for name, annotation in annotations.items()
        if get_origin(annotation) is Annotated
        for argument in annotation.__metadata__
        if isinstance(argument, Argument)
    }


def check_bounds(arguments: Any) -> None:
    """Raise OptionError if a field of an object is outside the bounds of its `Argument`."""
    for name, (_, argument) in declared(type(arguments)).items():
        value, low, high = getattr(arguments, name), argument.at_least, argument.at_most
        if value is None or low is None or low <= value <= (value if high is None else high):
            continue
        if high is None:
            raise OptionError(f"`{name}` must be at least {low:g}; got {value}.")
        is_percent = high < 1 and low <= value / 100 <= high
        remedy = f" For {value:g} %, say {value / 100:g}." if is_percent else ""
        raise OptionError(f"`{name}` must be {low:,} to {high:,}; got {value:,}.{remedy}")


def with_fields_of(
    make: Callable[_P, _Fields], *types: type
) -> Callable[[Callable[[_Fields], _Result]], Callable[_P, _Result]]:
    """Let a function take the fields of a dataclass as its arguments.

    The signature, the type checks and the "Args" of the docstring come from the dataclass.

    Args:
        make: The dataclass.
        types: The types that the dataclass quotes, because it must not load their modules.
    """

    def of(function: Callable[[_Fields], _Result]) -> Callable[_P, _Result]:
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _Result:
            return function(make(*args, **kwargs))

        return declares(called, function, make, types)

    return of


def method_with_fields_of(
    make: Callable[_P, _Fields], *types: type
) -> Callable[[Callable[[_Self, _Fields], _Result]], Callable[Concatenate[_Self, _P], _Result]]:
    """As `with_fields_of`, for a method."""

    def of(function: Callable[[_Self, _Fields], _Result]) -> Callable[Concatenate[_Self, _P], _Result]:
        def called(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _Result:
            return function(self, make(*args, **kwargs))

        return declares(called, function, make, types)

    return of


def declares(
    called: _Function, function: Callable[..., Any], make: Any, types: Sequence[type] = ()
) -> _Function:
    """Give a wrapper the arguments that a dataclass declares, and check their types.

    Args:
        called: The wrapper.
        function: The wrapped function, which takes the dataclass as its last argument.
        make: The dataclass.
        types: The types that the dataclass quotes.
    """
    *own, _ = inspect.signature(function).parameters.values()
    hints = get_type_hints(make, localns={quoted.__name__: quoted for quoted in types})
    fields = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(make).parameters.values()
    ]
    update_wrapper(called, function)
    result = function.__annotations__["return"]
    called.__signature__ = inspect.Signature([*own, *fields], return_annotation=result)  # type: ignore[attr-defined]
    lines = [f"    {name}: {argument.help}" for name, (_, argument) in declared(make).items()]
    text, returns, rest = (inspect.getdoc(function) or "").partition("\n\nReturns:")
    called.__doc__ = "\n".join([text, "", "Args:", *lines]) + returns + rest
    return typed(called)


def checked_positions(place: str, name: str, positions: Any, size: int) -> "np.ndarray":
    """Return positions as int64 [P]; raise OptionError unless each is a whole number in [0, size).

    Args:
        place: What the positions belong to, for the message.
        name: Name of the argument.
        positions: A list or an array.
        size: Number of positions there are.
    """
    import numpy as np

    rule = f"{place}: {name} must be whole numbers from 0 to {size - 1:,}" if size else f"{place} is empty"
    remedy = "Leave it out." if size else f"Leave {name} out."
    try:
        array = np.asarray(positions)
    except ValueError:
        raise OptionError(f"{rule}; got {_shown(positions)}. Give one list of them.") from None
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise OptionError(f"{rule}, in one list; got {_shown(positions)}. Convert them.")
    outside = (array < 0) | (array >= size)
    if outside.any():
        raise OptionError(f"{rule}; got {array[outside][0]}. {remedy}")
    return array.astype(np.int64, copy=False)


def typed(function: _Function) -> _Function:
    """Decorate a function to check its arguments against their annotations; raises ArgumentError.

    Numbers of NumPy count as numbers, anything with a path as a path, and any iterable but a text as a
    sequence. The function itself must check the entries of sequences, and values whose annotations say more,
    such as arrays.
    """

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        name, signature, local = _signature(checked)
        for argument, value in _bound(name, signature, args, kwargs).items():
            annotation = signature.parameters[argument].annotation
            if not _allows(annotation, value):
                remedy = f" Give {argument}.to_dict()." if _is_series(value, annotation) else ""
                raise ArgumentError(
                    f"{name}: {argument} must be {_description(annotation)}; got {_shown(value)}.{remedy}"
                    f" See `help(widenet.{name})`."
                )
            if argument in local:
                for path in value if isinstance(value, list | tuple) else [value]:
                    check_local(f"`{argument}`", path)
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


def _must_be_local(name: str, argument: str, annotation: Any) -> bool:
    """Whether an argument is a path, and neither a dataset to read nor one of those in stores."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    kinds = tuple(each for kind in kinds for each in (get_args(kind) or (kind,)))
    is_path = any(kind is Path or Path in get_args(kind) for kind in kinds)
    is_dataset = any(getattr(kind, "__name__", "") == "Dataset" for kind in kinds)
    return is_path and not is_dataset and (name, argument) not in _IN_STORES


@cache
def _signature(function: Callable[..., Any]) -> tuple[str, inspect.Signature, frozenset[str]]:
    """The public name of a function, its signature, and the arguments that must be local paths."""
    name, signature = (
        function.__qualname__.removesuffix(".__init__"),
        inspect.signature(function, eval_str=True),
    )
    parameters = signature.parameters.items()
    local = {argument for argument, each in parameters if _must_be_local(name, argument, each.annotation)}
    return name, signature, frozenset(local)


def _bound(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The arguments of a call by name."""
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        known = signature.parameters
        unknown = next((argument for argument in kwargs if argument not in known), None)
        reason = f"{error}."
        if unknown is not None:
            reason = f"{unknown} is not an argument.{_suggestion(name, unknown, known)}"
        raise ArgumentError(f"{name}: {reason} See `help(widenet.{name})`.") from None


def _suggestion(name: str, unknown: str, known: Iterable[str]) -> str:
    """A sentence that suggests what to write for an unknown argument; begins with a space."""
    replacement = _OPTIONS.get(unknown, "")
    if replacement.partition("=")[0] in known:
        return f" Write {replacement}."
    if (name, unknown) in _OTHER_FUNCTIONS:
        return f" Use {_OTHER_FUNCTIONS[name, unknown]}."
    return did_you_mean(unknown, known)


def _is_series(value: object, annotation: Any) -> bool:
    """Whether a value is a column of a table with an index, where a dictionary is allowed."""
    is_allowed = any(get_origin(each) is Mapping for each in get_args(annotation))
    return is_allowed and hasattr(value, "to_dict") and getattr(value, "ndim", 0) == 1


def _allows(annotation: Any, value: Any) -> bool:
    """Whether an annotation allows a value."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return any(_allows(option, value) for option in arguments)
    if origin is Literal:
        # The function itself checks the value.
        return any(isinstance(value, type(option)) for option in arguments)
    if origin in (Sequence, Iterable):
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _allows(arguments[0], key) and _allows(arguments[1], entry) for key, entry in value.items()
        )
    if origin is Callable:
        return callable(value)
    return _is_instance(annotation, value)


def _is_instance(kind: Any, value: Any) -> bool:
    """Whether a value is of a plain type or a class; true if `kind` is neither."""
    if kind is bool:
        # By name, so that NumPy's bool counts without loading NumPy.
        return type(value).__name__ in ("bool", "bool_")
    if kind in _KINDS:
        return isinstance(value, _KINDS[kind][0]) and not isinstance(value, bool)
    if not isinstance(kind, type) or kind in (Any, inspect.Parameter.empty):
        return True
    is_checkable = getattr(kind, "_is_protocol", False) == getattr(kind, "_is_runtime_protocol", False)
    return not is_checkable or isinstance(value, kind)


def _description(annotation: Any, plural: bool = False) -> str:
    """The values that an annotation allows, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        # A path may be a text too; that goes without saying.
        options = [option for option in arguments if not (option is str and Path in arguments)]
        listed = [_description(option, plural) for option in options]
        return " or ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 2 else listed)
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin in (Sequence, Iterable):
        return f"{'lists' if plural else 'a list'} of {_description(arguments[0], plural=True)}"
    if origin is Mapping:
        keys, values = arguments
        return "a dictionary" + (
            "" if values is Any else f" of {_description(values, True)} by {_description(keys, True)}"
        )
    if origin is Callable:
        return "a function"
    if annotation in _KINDS:
        _, one, more = _KINDS[annotation]
        return more if plural else one
    return f"a {getattr(annotation, '__name__', annotation)}"


def _shown(value: object) -> str:
    """A value for a message, cut if it is long, with its type if that is not obvious."""
    text = " ".join(repr(value).split()) if hasattr(value, "shape") else repr(value)
    short = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    is_plain = isinstance(value, str | bool | int | float | None)
    return short if is_plain else f"{short}, a {type(value).__name__}"
