"""Checks of errors by their facts: class, place and option, never the words of a sentence."""

from contextlib import contextmanager

import pytest

from widenet.errors import WidenetError


@contextmanager
def mistake(kind, place=None, option=None, line=None, column=None):
    """Expect an error of exactly one class, at a place and about an option.

    Args:
        kind: The class.
        place: The place: the whole of it, its file or a folder of it, or its path in the file.
        option: Python name of the option; None: not checked.
        line: Line of the place; None: not checked.
        column: Column of the line; None: not checked.
    """
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert type(error) is kind
    sentence = str(error)
    assert "\n" not in sentence
    assert sentence.endswith((".", "?"))
    if isinstance(error, WidenetError):
        # An error that does not carry its facts yet has them in its sentence.
        if place is not None:
            assert is_at(str(place), error.place) if error.place is not None else str(place) in sentence
        if option is not None:
            assert error.option == option if error.option is not None else option in sentence
        if line is not None:
            assert error.line == line if error.line is not None else f"line {line:,}" in sentence
        if column is not None:
            assert error.column == column if error.column is not None else str(column) in sentence


def is_at(place, found):
    """Whether an error's place is this one, or lies in it: "folder/network.json: layers[0]" in a folder."""
    file, _, within = found.partition(": ")
    return (
        place in (found, file, within)
        or f"/{place}/" in f"/{file}/"
        or found.endswith((f"/{place}", f".{place}"))
    )
