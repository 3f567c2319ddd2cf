"""Mistakes in a document: pydantic's errors as one sentence with a JSON path."""

import json
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from widenet.errors import did_you_mean, nearest

_RULES = {
    "string_type": "text in quotes",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object with named fields",
    "model_attributes_type": "an object with named fields",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "float32": "0, or a number that a float32 can hold: of magnitude 1.2e-38 to 3.4e38",
    "int_parsing_size": "a smaller whole number",
    "string_pattern_mismatch": 'text without "/", "\\" and control characters',
}
"""Rule that a value breaks, by pydantic's type of error."""


def first_mistake(model: type[BaseModel], where: str, values: Any, errors: Sequence[Any]) -> str:
    """Return pydantic's first error about the values of a document as one sentence.

    Args:
        model: The document's model.
        where: Beginning of the sentence.
        values: The document's plain values.
        errors: Pydantic's errors, at least one.
    """
    error = _clearest_error(model, values, errors)
    location, kind = error["loc"], error["type"]
    if kind == "json_invalid":
        return f"{where} must hold plain JSON values: {error['ctx']['error']}."
    path = _path(values, location, ends_named=kind != "value_error")
    place = f"{where}: {path}" if path else where
    if kind == "extra_forbidden":
        return (
            f"{place} is not a known"
            f" field.{did_you_mean(str(location[-1]), _known_fields(model, values, location))}"
        )
    if kind == "missing":
        return f"{place} {_missing(_at(values, location[:-1]), str(location[-1]))}"
    if kind == "value_error":
        return f"{place}: {error['ctx']['error']}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_kind(place, _at(values, location), str(error.get("ctx", {}).get("expected_tags", "")))
    if kind == "literal_error":
        known = [name.strip(" '") for name in error["ctx"]["expected"].replace(" or ", ", ").split(",")]
        value = error["input"]
        remedy = _taken_by(_owners(model, values, location), value) or nearest(str(value), known)
        return f"{place} must be one of {', '.join(known)}; got {shown(value)}.{remedy}"
    return f"{place} must be {_rule(error)}{_choices(errors)}; got {shown(error['input'])}."


def _clearest_error(model: type[BaseModel], values: Any, errors: Sequence[Any]) -> Any:
    """Return the first error, or the error of a misspelt field beside a missing one."""
    first = errors[0]
    if first["type"] == "missing":
        for other in errors:
            is_beside = other["type"] == "extra_forbidden" and other["loc"][:-1] == first["loc"][:-1]
            if is_beside and nearest(str(other["loc"][-1]), _known_fields(model, values, other["loc"])):
                return other
    return first


def _missing(owner: Any, field: str) -> str:
    """Say that a field is missing in an object, or beside a bare name that stands for one."""
    if isinstance(owner, str):
        return f'"{owner}" needs "{field}". Write {{"kind": "{owner}", "{field}": ...}}.'
    return f'is missing. Add "{field}".'


def _choices(errors: Sequence[Any]) -> str:
    """Names that the first error's field takes too, such as "auto" besides a number."""
    others = [
        error
        for error in errors[1:]
        if error["loc"][:-1] == errors[0]["loc"][:-1] and error["type"] == "literal_error"
    ]
    return "".join(f", or {error['ctx']['expected']}" for error in others).replace("'", '"')


def _path(values: Any, location: tuple[int | str, ...], ends_named: bool = True) -> str:
    """The JSON path of a pydantic location, without the union members and positions that pydantic adds.

    Args:
        values: The document's plain values.
        location: Pydantic's location.
        ends_named: Whether the last part is a field, which may be missing from the document.
    """
    path, here = "", values
    for position, part in enumerate(location):
        last = ends_named and position == len(location) - 1
        if isinstance(part, int):
            path += f"[{part}]" if isinstance(here, list) else ""
            here = _at(here, (part,))
        elif isinstance(here, dict) and (part in here or last):
            path += f".{part}" if path else part
            here = here.get(part)
    return path


def _at(values: Any, path: tuple[int | str, ...]) -> Any:
    for part in path:
        if isinstance(part, int):
            values = values[part] if isinstance(values, list) and part < len(values) else values
        elif isinstance(values, dict) and part in values:
            values = values[part]
    return values


def _unknown_kind(place: str, got: Any, expected: str) -> str:
    known = [name.strip(" '") for name in expected.split(",") if name.strip()]
    if isinstance(got, str):
        return f"{place} must be a known name; got {shown(got)}.{did_you_mean(got, known)}"
    if not isinstance(got, dict):
        return f"{place} must be an object with named fields; got {shown(got)}."
    if "kind" not in got:
        near = next((key for key in got if nearest(key, ["kind"])), None)
        if near is None:
            return f'{place}.kind is missing. Add "kind".'
        return f"{place}.{near} is not a known field.{nearest(near, ['kind'])}"
    return (
        f"{place}.kind must be a known name; got {shown(got['kind'])}.{did_you_mean(str(got['kind']), known)}"
    )


def _rule(error: Any) -> str:
    context = error.get("ctx", {})
    for name, words in (("ge", "at least"), ("gt", "more than"), ("le", "at most"), ("lt", "less than")):
        if name in context:
            return f"{words} {context[name]}"
    if error["type"] in ("too_short", "string_too_short"):
        return f"at least {context['min_length']} long"
    if error["type"] == "too_long":
        return f"at most {context['max_length']} long"
    if error["type"] == "string_too_long":
        return f"at most {context['max_length']} characters long"
    rule = _RULES.get(str(error["type"])) or str(error["msg"][0].lower() + error["msg"][1:].rstrip("."))
    if error["type"] in ("int_type", "float_type") and isinstance(error["input"], str):
        return f"{rule}, without quotes"
    if error["type"] == "int_type" and isinstance(error["input"], float) and error["input"].is_integer():
        return f"{rule}, without a decimal point"
    return rule


def shown(value: Any) -> str:
    """Return a value as JSON, cut if it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _taken_by(owners: Sequence[type[BaseModel]], value: Any) -> str:
    """Name the only field of an object that takes a value, if another does not: a sentence to append."""
    names = {
        field.alias or name
        for owner in owners
        for name, field in owner.model_fields.items()
        if isinstance(value, str) and value in getattr(field.annotation, "__args__", ())
    }
    return f' "{names.pop()}" takes it.' if len(names) == 1 else ""


def _known_fields(model: type[BaseModel], values: Any, location: tuple[int | str, ...]) -> list[str]:
    """The fields of the object with an unknown key."""
    fields = [entry for owner in _owners(model, values, location) for entry in owner.model_fields.items()]
    return list(dict.fromkeys(field.alias or name for name, field in fields))


def _owners(
    model: type[BaseModel], values: Any, location: tuple[int | str, ...]
) -> Sequence[type[BaseModel]]:
    """The models that the object around a place may have, by the models along the path."""
    candidates: list[type[BaseModel]] = [model]
    here = values
    for part in location[:-1]:
        if isinstance(part, str):
            inner = [
                member
                for owner in candidates
                if part in owner.model_fields
                for member in _models_in(owner.model_fields[part].annotation)
            ]
            candidates = inner or candidates
        here = _at(here, (part,))
    kind = here.get("kind") if isinstance(here, dict) else None
    exact = [owner for owner in candidates if _kind_of(owner) == (kind or "hidden")]
    return exact or [owner for owner in candidates if kind in _kinds(owner)] or candidates


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return getattr(field.annotation, "__args__", ()) if field is not None else ()


def _kind_of(model: type[BaseModel]) -> Any:
    kinds = _kinds(model)
    return kinds[0] if len(kinds) == 1 else None


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models_in(argument)]
