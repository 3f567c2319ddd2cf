"""What a user can cause: one exception per cause, each a sentence with place, rule, value and remedy."""

import difflib
from collections.abc import Iterable


class WidenetError(Exception):
    """The base of every error that a user can cause and mend.

    The command line prints it and exits with `status`.
    """

    status = 2


class DocumentError(WidenetError):
    """A network or training document breaks a rule; the message begins with the file and the JSON path."""


class DataError(WidenetError):
    """A source file, a dataset directory or a value in one breaks a rule."""


class OptionError(WidenetError):
    """A command-line option or a function argument breaks a rule."""


class ArgumentError(OptionError, TypeError):
    """A function argument is of another type than the function takes, is missing, or is unknown."""


class FitError(WidenetError):
    """The documents and the dataset are each right, but do not go together (widths, fields, parts)."""


class CapacityError(WidenetError):
    """A training needs more memory than its devices have; the message says what would do."""


class CheckpointError(WidenetError):
    """A run directory or a checkpoint is missing, damaged, or of another network."""


class NumericsError(WidenetError):
    """Training met an infinite or undefined number; the message names step and layer."""


class DisagreementError(WidenetError):
    """The processes of a group do not have the same data, documents, software or weights; the message
    names the ranks.
    """


class GroupError(WidenetError):
    """Another process of the group was lost, or did not answer in time."""

    status = 3


def reason_of(error: BaseException) -> str:
    """Return what a library says in an error, to stand within a sentence: its first line without the full
    stop.
    """
    text = str(
        error.args[0] if isinstance(error, KeyError) and error.args else error
    )  # str() of a KeyError adds quotes
    first = text.strip().partition("\n")[0].rstrip(" .:")
    return first[:200] or type(error).__name__


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence with the nearest known name, or with all of them; begins with a space, ready to append."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f' Did you mean "{near[0]}"?'
    return f" Known: {', '.join(names)}." if names else ""
