"""Sentences about requests that are no request."""

import re
from ast import literal_eval
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin

import msgspec

from widenet.errors import nearest

_REMEDY = "GET /openapi.json describes requests."
_PLACE = re.compile(r"(?P<rule>.*) - at `\$\.?(?P<place>[^`]*)`", re.DOTALL)
_LONGEST_NAME = 100
"""Characters of an unknown name or value that are looked at and shown."""
_WRONG_TYPE = re.compile(r"Expected `(.+)`, got `(.+)`")
_WRONG_CHOICE = re.compile(r"Invalid enum value ('.*'|\".*\")", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_NO_JSON = re.compile(r"JSON is malformed: (.*)", re.DOTALL)
_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_GOT = {"float": "a fraction"}
_SYNTAX = msgspec.json.Decoder(msgspec.Raw)


def sentence_of(error: Exception, kind: type, body: bytes | bytearray) -> str:
    """Return a sentence about a body that msgspec refused to read as a request of some kind.

    Args:
        error: Why msgspec refused it.
        kind: The kind of request.
        body: The body.
    """
    wrong = _wrong_syntax(body) if isinstance(error, msgspec.ValidationError) else error
    return _sentence(error, kind) if wrong is None else _of_syntax(wrong)


def unknown_parameter(name: str, known: Iterable[str]) -> str:
    """Return a sentence about a parameter that a route does not have, with the nearest of those it has."""
    name = name[:_LONGEST_NAME]
    return f"the route has no parameter {name!r}.{nearest(name, known)} {_REMEDY}"


def _wrong_syntax(body: bytes | bytearray) -> Exception | None:
    """Return why a body is no JSON, if so: msgspec may refuse the kind of a value before it reads its end."""
    try:
        _SYNTAX.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return error
    return None


def _of_syntax(error: Exception) -> str:
    if str(error) == "Input data was truncated":
        return f"the body is no valid JSON: its end is missing. {_REMEDY}"
    found = _NO_JSON.fullmatch(str(error))
    return f"the body is no valid JSON{'' if found is None else f': {found[1]}'}. {_REMEDY}"


def _sentence(error: Exception, kind: type) -> str:
    said = str(error).rstrip(".")
    placed = _PLACE.fullmatch(said)
    rule, place = (said, "") if placed is None else placed.group("rule", "place")
    place = f"a value of {place.removesuffix('[...]')}" if place.endswith("[...]") else place or "the body"
    if wrong := _WRONG_TYPE.fullmatch(rule):
        return f"{place} must be {_kinds(wrong[1])}; got {_GOT.get(wrong[2]) or _kinds(wrong[2])}. {_REMEDY}"
    if wrong := _WRONG_CHOICE.fullmatch(rule):
        given, choices = literal_eval(wrong[1])[:_LONGEST_NAME], _choices(kind, place.rpartition(".")[2])
        names = _or([f'"{each}"' for each in choices])
        return f"{place} must be {names}; got {given!r}.{nearest(given, choices)} {_REMEDY}"
    if unknown := _UNKNOWN.fullmatch(rule):
        name = unknown[1][:_LONGEST_NAME]
        near = nearest(name, [each.name for each in msgspec.structs.fields(kind)])
        return f"{place} has the unknown field {name!r}.{near} {_REMEDY}"
    if missing := _MISSING.fullmatch(rule):
        return f"{place} must have the field {missing[1]!r}. {_REMEDY}"
    return f"{place}: {rule}. {_REMEDY}"


def _choices(kind: type, name: str) -> tuple[Any, ...]:
    """Return the texts that a field of a request takes, or of the requests in it."""
    own = next(each.type for each in msgspec.structs.fields(kind) if each.name == name)
    (texts,) = (get_args(each) for each in (own, *get_args(own)) if get_origin(each) is Literal)
    return texts


def _kinds(union: str) -> str:
    """The words for types of JSON with bars between them; a number is also a whole number."""
    kinds = union.split(" | ")
    return _or([_WORDS.get(kind, kind) for kind in kinds if kind != "int" or "float" not in kinds])


def _or(words: list[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
