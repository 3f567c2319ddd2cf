"""Arguments of the functions that people call: those of a wrong type refused in one sentence, before any
work.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from widenet.errors import ArgumentError, did_you_mean

_Function = TypeVar("_Function", bound=Callable[..., Any])

_KINDS: dict[Any, tuple[tuple[type, ...], str, str]] = {
    str: ((str,), "a text", "texts"),
    bool: ((bool,), "True or False", "True or False"),
    int: ((Integral,), "a whole number", "whole numbers"),
    float: ((Real,), "a number", "numbers"),
    Path: ((os.PathLike,), "a path", "paths"),
    NoneType: ((NoneType,), "None", "None"),
}
"""What stands for the plain types, and what they are called: one, and several."""

_OPTIONS = {"include_seen": "exclude_seen=False"}
"""What arguments say in place of options that the command line has."""

_LONGEST_SHOWN = 60


def typed(function: _Function) -> _Function:
    """The same function, which raises ArgumentError for an argument that its annotation does not allow, or
    that it does not know.

    Numbers of NumPy are numbers, anything with a path is a path, and any iterable but a text is a sequence,
    whose entries are left to the function, and so are annotations that say more, such as arrays.
    """

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        place, known = _known(called)
        for name, value in _given(place, known, args, kwargs).items():
            annotation = known.parameters[name].annotation
            if not _allows(annotation, value):
                raise ArgumentError(
                    f"{place}: {name} must be {_words(annotation)}; got {_shown(value)}. See"
                    f" `help(widenet.{place})`."
                )
        return function(*args, **kwargs)

    return called  # type: ignore[return-value]


@cache
def _known(function: Callable[..., Any]) -> tuple[str, inspect.Signature]:
    """What people call a function, and its parameters."""
    return function.__qualname__.removesuffix(".__init__"), inspect.signature(function, eval_str=True)


def _given(
    place: str, known: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The arguments of a call by name."""
    try:
        return known.bind(*args, **kwargs).arguments
    except TypeError as error:
        unknown = next((name for name in kwargs if name not in known.parameters), None)
        reason = (
            f"{error}."
            if unknown is None
            else f"{unknown} is not an argument.{_instead(unknown, known.parameters)}"
        )
        raise ArgumentError(f"{place}: {reason} See `help(widenet.{place})`.") from None


def _instead(unknown: str, known: Iterable[str]) -> str:
    """A sentence with what may have been meant by an unknown argument; begins with a space."""
    said = _OPTIONS.get(unknown, "")
    return f" Write {said}." if said.partition("=")[0] in known else did_you_mean(unknown, known)


def _allows(annotation: Any, value: Any) -> bool:
    """Whether a value may be given where this annotation stands."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return any(_allows(each, value) for each in arguments)
    if origin is Literal:
        return any(
            isinstance(value, type(each)) for each in arguments
        )  # which of them it may be, the function says
    if origin in (Sequence, Iterable):
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _allows(arguments[0], key) and _allows(arguments[1], each) for key, each in value.items()
        )
    if origin is Callable:
        return callable(value)
    return _is_one(annotation, value)


def _is_one(kind: Any, value: Any) -> bool:
    """Whether a value is of a plain type or a class; of what is neither, everything is."""
    if kind is bool:
        return type(value).__name__ in ("bool", "bool_")  # NumPy's too, which is not loaded for it
    if kind in _KINDS:
        return isinstance(value, _KINDS[kind][0]) and not isinstance(value, bool)
    is_class = isinstance(kind, type) and kind not in (Any, inspect.Parameter.empty)
    can_be_asked = is_class and getattr(kind, "_is_protocol", False) == getattr(
        kind, "_is_runtime_protocol", False
    )
    return not can_be_asked or isinstance(value, kind)


def _words(annotation: Any, several: bool = False) -> str:
    """What an annotation allows."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        kinds = [each for each in arguments if not (each is str and Path in arguments)]
        listed = [_words(each, several) for each in kinds]
        return " or ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 2 else listed)
    if origin is Literal:
        return f"one of {', '.join(map(repr, arguments))}"
    if origin in (Sequence, Iterable):
        return f"{'lists' if several else 'a list'} of {_words(arguments[0], several=True)}"
    if origin is Mapping:
        return "a dictionary" + (
            "" if arguments[1] is Any else f" of {_words(arguments[1], True)} by {_words(arguments[0], True)}"
        )
    if origin is Callable:
        return "a function"
    if annotation in _KINDS:
        _, one, more = _KINDS[annotation]
        return more if several else one
    return f"a {getattr(annotation, '__name__', annotation)}"


def _shown(value: object) -> str:
    """A value and its type, for a message."""
    text = repr(value)
    short = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return (
        short if isinstance(value, str | bool | int | float | None) else f"{short}, a {type(value).__name__}"
    )
