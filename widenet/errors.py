"""Exceptions for mistakes that a user can correct, one class for each cause.

An error carries facts: a place, an option, the rule that is broken and the value that breaks it. `worded`
makes the sentence of them; a face such as the command line passes it the way in which it writes options.
"""

import difflib
import errno
import json
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the errors of a disk, a quota or a file that is full."""

_LONGEST_VALUE = 60


class WidenetError(Exception):
    """Base class of all errors that a user can correct.

    The command line prints the sentence and exits with `status`.

    Args:
        rule: The rule that is broken, as the end of a sentence without its full stop: "must be at least 1".
            Without a place and an option it is the whole sentence. Other options stand in it in backticks by
            their Python names, which a face writes in its own way.
        place: A path, a path within a document, a layer, or whatever else the rule is about.
        line: Line of the place, from 1.
        column: Column of the line: its name or its number from 1.
        option: Python name of the argument or option.
        value: The value that breaks the rule; None if nothing was given.
    """

    status = 2

    def __init__(
        self,
        rule: str,
        *,
        place: object = None,
        line: int | None = None,
        column: int | str | None = None,
        option: str | None = None,
        value: Any = None,
    ) -> None:
        super().__init__(rule)
        self.rule, self.option = rule, option
        self.place = None if place is None else str(place)
        self.line, self.column = line, column
        # As text, so that an error can be sent to another process.
        self.value = None if value is None else shown(value)

    def __str__(self) -> str:
        return worded(self)

    @classmethod
    def require(cls, holds: object, rule: str, **facts: Any) -> None:
        """Raise this error with the rule and its facts, such as place and value, unless the rule holds."""
        if not holds:
            raise cls(rule, **facts)

    @classmethod
    def refuse(cls, place: Callable[[str], str], *rules: tuple[Any, ...]) -> None:
        """Raise this error for the first rule that is broken.

        Args:
            place: Returns the place of a setting.
            rules: A setting, whether it breaks the rule, the rule, and maybe the value that breaks it.
        """
        for setting, is_broken, rule, *value in rules:
            if is_broken:
                raise cls(rule, place=place(setting), value=value[0] if value else None)


def worded(error: WidenetError, write_option: Callable[[str], str] = str) -> str:
    """Return the sentence of an error: `books.csv, line 3: delimiter must be a character; got ";;".`.

    Args:
        error: The error.
        write_option: Returns how an option is written where the sentence is read.
    """
    at = [error.place] if error.place is not None else []
    at += [f"line {error.line:,}"] if error.line is not None else []
    at += [f"column {error.column}"] if error.column is not None else []
    subject = f"{write_option(error.option)} " if error.option is not None else ""
    value = f"; got {error.value}" if error.value is not None else ""
    sentence = f"{', '.join(at)}{': ' if at else ''}{subject}{error.rule}{value}"
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def in_one_line(text: str) -> str:
    """Return a text with escapes in place of control characters, such as those of a file's name."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def shown(value: object) -> str:
    """Return a value as a sentence shows it: text in double quotes, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


class DocumentError(WidenetError):
    """A network or training document breaks a rule; the message begins with the file and the JSON path.

    It is missing or not JSON, has an unknown field or a number out of range, or a loss does not fit its
    activation.
    """


class DataError(WidenetError):
    """A source file, a dataset directory or a value in one breaks a rule.

    A file is missing or empty, a cell breaks its rule, a column or a format must be named, the directory to
    write exists already, or an item, user or field is unknown.
    """


class OptionError(WidenetError):
    """A command-line option or a function argument breaks a rule, or conflicts with another."""


class ArgumentError(OptionError, TypeError):
    """A function argument is missing, is unknown, or has the wrong type."""


class FitError(WidenetError):
    """The documents and the dataset are each valid, but do not match.

    The dataset lacks a field or a part, a field is sparse but must be dense, targets are outside the range of
    the loss, or the dataset is not the one of the run.
    """


class CapacityError(WidenetError):
    """A training needs more memory than its devices have; `widenet plan` shows how much it needs."""


class CheckpointError(WidenetError):
    """A run directory or a checkpoint is missing, is damaged, or belongs to another network.

    Or the run exists already, another process trains in it, it has no weights yet, or the disk is full.
    """


class NumericsError(WidenetError):
    """Training computed an infinite or undefined number; the message names the step and the layer.

    Lower the learning rate, set `gradient_norm_limit`, or scale the field that the message names.
    """


class DisagreementError(WidenetError):
    """The processes of a group differ in data, documents, software or weights; the message names ranks."""


class StoreError(WidenetError):
    """An object store refuses, cannot be reached, or holds something else than it must."""


class GroupError(WidenetError):
    """Another process of the group was lost or did not answer in time; the exit status is 3."""

    status = 3


def warn_user(sentence: str) -> None:
    """Warn whoever has called the package: its first frame outside is where the warning points."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "widenet":
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, stacklevel=level)


def reason_of(error: BaseException) -> str:
    """Return the first line of a library's error message without its full stop, to be put in a sentence."""
    # str() of a KeyError adds quotes.
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    first = str(message).strip().partition("\n")[0].rstrip(" .:")
    return first[:200] or type(error).__name__


def unwritten(path: object, error: OSError | RuntimeError) -> str:
    """Return the sentence for a path that cannot be written; HDF5 hides the reason in a RuntimeError."""
    return f"{path} cannot be written: {getattr(error, 'strerror', None) or error}."


_DAMAGES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (UnicodeDecodeError, "it is no UTF-8 text"),
    (json.JSONDecodeError, "it is no JSON"),
    (RecursionError, "it is nested too deeply"),
    (
        (ValueError, LookupError, TypeError, AttributeError, OverflowError),
        "a value is missing or of another kind",
    ),
)
"""Errors of reading a file, the first that fits, and what is then wrong with the file."""


def damage_of(error: BaseException) -> str:
    """Return why a file that only programs write cannot be read, in words to be put in a sentence."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    found = (damage for kinds, damage in _DAMAGES if isinstance(error, kinds))
    return next(found, None) or reason_of(error)


def alike(text: str, known: Iterable[str], most: int = 1, cutoff: float = 0.6) -> list[str]:
    """Return the known names most like a text in any case, the most similar first.

    Args:
        text: The text.
        known: The names. Of those that differ only in case, the first counts.
        most: Largest number of names.
        cutoff: Least similarity, from 0 to 1, as `difflib` measures it.
    """
    by_lower: dict[str, str] = {}
    for name in known:
        by_lower.setdefault(name.lower(), name)
    return [
        by_lower[each] for each in difflib.get_close_matches(text.lower(), by_lower, n=most, cutoff=cutoff)
    ]


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name, if one is near: a sentence to append, which begins with a space."""
    near = alike(name, known)
    return f' Did you mean "{near[0]}"?' if near else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name, or list all: a sentence to append, which begins with a space."""
    names = list(dict.fromkeys(known))
    return nearest(name, names) or (f" Known: {', '.join(names)}." if names else "")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or torch ran out of memory, on a CPU or a GPU."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "can't allocate memory" in str(error)
    )
