"""Sentences about bodies of requests that are no request."""

import re

import msgspec

from widenet.errors import nearest

_REMEDY = "GET /openapi.json describes requests."
_PLACE = re.compile(r"(?P<rule>.*?)(?: - at `\$\.?(?P<place>.*)`)?", re.DOTALL)
_LONGEST_NAME = 100
"""Characters of an unknown field's name that are looked at and shown."""
_WRONG_TYPE = re.compile(r"Expected `(.+)`, got `(.+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
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


def sentence_of(error: Exception, kind: type) -> str:
    """Return a sentence about a body that msgspec refused to read as a request of some kind."""
    if not isinstance(error, msgspec.DecodeError):
        return f"the body is no valid JSON. {_REMEDY}"
    parsed = _PLACE.fullmatch(str(error).rstrip("."))
    assert parsed is not None, "everything matches"
    rule, place = parsed["rule"], parsed["place"] or ""
    place = f"a value of {place.removesuffix('[...]')}" if place.endswith("[...]") else place or "the body"
    if wrong := _WRONG_TYPE.fullmatch(rule):
        return f"{place} must be {_kinds(wrong[1])}; got {_GOT.get(wrong[2]) or _kinds(wrong[2])}. {_REMEDY}"
    if unknown := _UNKNOWN.fullmatch(rule):
        name = unknown[1][:_LONGEST_NAME]
        near = nearest(name, [each.name for each in msgspec.structs.fields(kind)])
        return f"{place} has the unknown field {name!r}.{near} {_REMEDY}"
    if missing := _MISSING.fullmatch(rule):
        return f"{place} must have the field {missing[1]!r}. {_REMEDY}"
    return f"{place}: {rule}. {_REMEDY}"


def _kinds(union: str) -> str:
    """The words for types of JSON with bars between them; a number is also a whole number."""
    kinds = union.split(" | ")
    *others, last = [_WORDS.get(kind, kind) for kind in kinds if kind != "int" or "float" not in kinds]
    return f"{', '.join(others)} or {last}" if others else last
