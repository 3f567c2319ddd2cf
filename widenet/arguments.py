"""Type checks for the arguments of public functions: a wrong one raises ArgumentError before any work."""

import inspect
import os
import re
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
    ForwardRef,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from widenet.errors import ArgumentError, OptionError, nearest

if TYPE_CHECKING:  # every start of the command line loads this module
    import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])
_P = ParamSpec("_P")
_Fields = TypeVar("_Fields")
_Result = TypeVar("_Result")
_Self = TypeVar("_Self")

_CLASSES: dict[Any, type] = {str: str, int: Integral, float: Real, Path: os.PathLike, NoneType: NoneType}
"""The classes that match plain types."""
_URI = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
"""How a URI begins, also the path that `Path` makes of one."""

IN_STORES = "may be the URI of an object store"
"""Marks the type of a path that may be a URI: `Annotated[Path, IN_STORES]`. Other paths must be local, unless
the type has a class that opens them, such as `Dataset | Path`.
"""
Location: TypeAlias = Annotated[str | Path, IN_STORES]
"""A local path or the URI of an object store."""


@dataclass(frozen=True)
class Argument:
    """Purpose and bounds of an argument: `seed: Annotated[int, Argument("Start.", at_least=0)] = 0`.

    The docstring of the function, the flag of the command line and its help come from it.

    Attributes:
        help: A sentence, with other arguments in backticks.
        form: Placeholder of the value in a list of flags.
        at_least: Smallest value.
        at_most: Largest value; needs `at_least`.
        flag: Name of the flag, if it is not that of the argument; an empty text if there is no flag.
        is_repeated: Whether the flag may be given several times, for a list; otherwise commas part a list.
    """

    help: str
    form: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    flag: str | None = None
    is_repeated: bool = False


def check_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Raise OptionError if an argument's value is not one of the choices; None stands for none."""
    if value is not None and value not in choices:
        rule = f"must be one of {', '.join(choices)}; got {value!r}.{nearest(str(value), choices)}"
        raise OptionError(rule, option=option)


def declared(owner: type) -> dict[str, tuple[Any, Argument]]:
    """Types (with marks) and `Argument` of the fields of a class that have one; resolves no quoted type."""
    annotations = {
        name: annotation
        for kind in reversed(owner.__mro__)
        for name, annotation in inspect.get_annotations(kind).items()
    }
    return {
        name: (_without_help(annotation), argument)
        for name, annotation in annotations.items()
        if get_origin(annotation) is Annotated
        for argument in annotation.__metadata__
        if isinstance(argument, Argument)
    }


class Checked:
    """A dataclass of arguments, whose bounds are checked when it is made; raises OptionError."""

    def __post_init__(self) -> None:
        check_bounds(self)


def check_bounds(arguments: Any) -> None:
    """Raise OptionError if a field of an object is outside the bounds of its `Argument`."""
    for name, (_, argument) in declared(type(arguments)).items():
        value, low, high = getattr(arguments, name), argument.at_least, argument.at_most
        if value is None or low is None or low <= value <= (value if high is None else high):
            continue
        rule = f"must be at least {low:,}" if high is None else f"must be {low:,} to {high:,}"
        raise OptionError(rule, option=name, value=value)


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
    hints = get_type_hints(make, localns={quoted.__name__: quoted for quoted in types}, include_extras=True)
    fields = [
        parameter.replace(annotation=_without_help(hints[parameter.name]))
        for parameter in inspect.signature(make).parameters.values()
    ]
    update_wrapper(called, function)
    result = function.__annotations__["return"]
    called.__signature__ = inspect.Signature([*own, *fields], return_annotation=result)  # type: ignore[attr-defined]
    lines = [f"    {name}: {argument.help}" for name, (_, argument) in declared(make).items()]
    text, returns, rest = (inspect.getdoc(function) or "").partition("\n\nReturns:")
    called.__doc__ = "\n".join([text, "", "Args:", *lines]) + returns + rest
    return typed(called)


def _without_help(hint: Any) -> Any:
    """Return a type without its `Argument`."""
    marks = [mark for mark in getattr(hint, "__metadata__", ()) if not isinstance(mark, Argument)]
    plain = hint.__origin__ if get_origin(hint) is Annotated else hint
    return Annotated[plain, *marks] if marks else plain


def checked_positions(place: str, name: str, positions: Any, size: int) -> "np.ndarray":
    """Return positions as int64 [P]; raise OptionError unless each is a whole number in [0, size).

    Args:
        place: What the positions belong to, for the message.
        name: Name of the argument.
        positions: A list or an array.
        size: Number of positions there are.
    """
    import numpy as np

    rule = f"must be a list of whole numbers from 0 to {size - 1:,}"
    try:
        array = np.asarray(positions)
        is_sound = array.ndim == 1 and (len(array) == 0 or array.dtype.kind in "iu")
    except ValueError:
        is_sound = False
    OptionError.require(is_sound, rule, place=place, option=name, value=positions)
    outside = array[(array < 0) | (array >= size)]
    OptionError.require(not len(outside), rule, place=place, option=name, value=outside[:1].tolist())
    return array.astype(np.int64, copy=False)


def check_local(option: str, value: object) -> None:
    """Raise OptionError if a path that must be local is a URI, which is not repeated: it may hold a secret.

    Args:
        option: Name of the argument.
        value: Its value; whatever is neither a text nor a path passes.
    """
    if isinstance(value, str | os.PathLike) and _URI.match(os.fsdecode(value)):
        raise OptionError("must be a local path, not a URI", option=option)


def must_be_local(annotation: Any) -> bool:
    """Whether a type is that of a local path, or of several."""
    if get_origin(annotation) is Annotated:
        return IN_STORES not in annotation.__metadata__ and must_be_local(annotation.__origin__)
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if any(
        isinstance(kind, ForwardRef) or (inspect.isclass(kind) and kind not in _CLASSES) for kind in kinds
    ):
        return False
    return any(
        kind is Path or (get_origin(kind) in (list, Sequence) and must_be_local(get_args(kind)[0]))
        for kind in kinds
    )


def typed(function: _Function) -> _Function:
    """Decorate a function to check its arguments against their annotations; raises ArgumentError.

    Numbers of NumPy count as numbers, anything with a path as a path, and any iterable but a text as a
    sequence. The function itself must check the entries of sequences, and values whose annotations say more,
    such as arrays. Paths must be local, as `must_be_local` says.
    """

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        name, signature = _signature(checked)
        for argument, value in _bound(name, signature, args, kwargs).items():
            annotation = signature.parameters[argument].annotation
            if not _allows(annotation, value):
                rule = f"must be {inspect.formatannotation(_without_help(annotation))}"
                raise ArgumentError(rule, place=name, option=argument, value=value)
            if must_be_local(annotation):
                for path in value if isinstance(value, list | tuple) else [value]:
                    check_local(argument, path)
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


@cache
def _signature(function: Callable[..., Any]) -> tuple[str, inspect.Signature]:
    """The public name of a function, and its signature."""
    return function.__qualname__.removesuffix(".__init__"), inspect.signature(function, eval_str=True)


def _bound(
    name: str, signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The arguments of a call by name."""
    try:
        return signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        raise ArgumentError(str(error), place=name) from None


def _allows(annotation: Any, value: Any) -> bool:
    """Whether an annotation allows a value."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _allows(arguments[0], value)
    if origin in (Union, UnionType):
        return any(_allows(option, value) for option in arguments)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin in (Sequence, Iterable):
        return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _allows(arguments[0], key) and _allows(arguments[1], entry) for key, entry in value.items()
        )
    if origin is Callable:
        return callable(value)
    if annotation is bool:
        # By name, so that NumPy's bool counts without loading NumPy.
        return type(value).__name__ in ("bool", "bool_")
    if annotation in _CLASSES:
        return isinstance(value, _CLASSES[annotation]) and not isinstance(value, bool)
    if not isinstance(annotation, type) or annotation in (Any, inspect.Parameter.empty):
        return True
    is_checkable = getattr(annotation, "_is_protocol", False) == getattr(
        annotation, "_is_runtime_protocol", False
    )
    return not is_checkable or isinstance(value, annotation)
