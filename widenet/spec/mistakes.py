"""Mistakes in a document: pydantic's first error as facts."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from widenet.errors import DocumentError, did_you_mean


def first_mistake(model: type[BaseModel], where: str, values: Any, errors: Sequence[Any]) -> DocumentError:
    """Return the error for the first mistake in the values of a document.

    Args:
        model: The document's model.
        where: The document.
        values: The document's plain values.
        errors: Pydantic's errors, at least one. An unknown field comes first, since another may lack for it.
    """
    error = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    location, kind, value = error["loc"], error["type"], error["input"]
    path = _path(values, location, ends_named=kind != "value_error")
    place = f"{where}: {path}" if path else where
    if kind == "extra_forbidden":
        names = [name for owner in _owners(model, location) for name in _names(owner)]
        return DocumentError(f"is not a known field.{did_you_mean(str(location[-1]), names)}", place=place)
    if kind == "missing":
        parent = _path(values, location[:-1])
        field = f"{parent}.{location[-1]}" if parent else location[-1]
        return DocumentError("is missing", place=f"{where}: {field}")
    if kind == "value_error":
        return DocumentError(str(error["ctx"]["error"]), place=place)
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_kind(place, value, error.get("ctx", {}).get("expected_tags", ""))
    choices = [each for each in errors if each["loc"][:-1] == location[:-1] and each is not error]
    rule = error["msg"].partition(" should ")[2]
    rule = f"must {rule}" if rule else error["msg"][0].lower() + error["msg"][1:]
    for choice in choices:
        if choice["type"] == "literal_error":
            rule += f", or {choice['ctx']['expected']}"
    return DocumentError(rule, place=place, value=value)


def _unknown_kind(place: str, value: Any, expected: str) -> DocumentError:
    if not isinstance(value, dict):
        return DocumentError("must be an object with named fields", place=place, value=value)
    kind = value.get("kind")
    if not isinstance(kind, str):
        return DocumentError("is missing or no text", place=f"{place}.kind")
    known = [name.strip(" '") for name in expected.split(",") if name.strip()]
    return DocumentError(f'"{kind}" is not a known kind.{did_you_mean(kind, known)}', place=place)


def _path(values: Any, location: tuple[int | str, ...], ends_named: bool = True) -> str:
    """Return the JSON path of a pydantic location, without the union members and positions that it adds.

    Args:
        values: The document's plain values.
        location: Pydantic's location.
        ends_named: Whether the last part is a field, which may be missing from the document.
    """
    path, here = "", values
    for position, part in enumerate(location):
        last = ends_named and position == len(location) - 1
        if isinstance(part, int):
            if isinstance(here, list):
                path += f"[{part}]"
                here = here[part] if part < len(here) else None
        elif isinstance(here, dict) and (part in here or last):
            path += f".{part}" if path else part
            here = here.get(part)
    return path


def _owners(model: type[BaseModel], location: tuple[int | str, ...]) -> Sequence[type[BaseModel]]:
    """Return the models that the object around a place may have."""
    models: list[type[BaseModel]] = [model]
    for part in location[:-1]:
        fields = [owner.model_fields[part] for owner in models if part in owner.model_fields]
        inner = [each for field in fields for each in _models_in(field.annotation)]
        models = inner or [owner for owner in models if part in _kinds(owner)] or models
    return models


def _names(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return getattr(field.annotation, "__args__", ()) if field is not None else ()


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models_in(argument)]
