"""Reading a document: JSON text to a frozen typed model, every mistake one sentence with its JSON path."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import pydantic
from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from widenet.arguments import typed
from widenet.errors import DocumentError, did_you_mean

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _Metaclass
else:
    _Metaclass = type(BaseModel)

_SMALLEST, _LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""The smallest magnitude that a float32 holds in full precision, and the largest."""


class Spec(BaseModel):
    """A part of a document: frozen, strict, without unknown keys; attribute docstrings become its documentation."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _fits_float32(cls, value: Any) -> Any:
        """Every number is computed with as a float32: refuse those that would become infinite, or zero."""
        if isinstance(value, float) and value != 0 and not _SMALLEST <= abs(value) <= _LARGEST:
            raise PydanticCustomError("float32", "a number of float32")
        return value


class _Spoken(_Metaclass):
    """Makes a document of keywords as one is made of a file: plain lists and dictionaries are taken, and a mistake is one sentence."""

    def __call__(self, *args: Any, **values: Any) -> Any:
        try:
            return super().__call__(*args, **values)
        except ValidationError as error:
            assert issubclass(self, Document)
            if _is_plain(values):
                return self.of(values, self.usual_name)
            errors = error.errors(include_url=False)
            raise DocumentError(_sentence(self, self.usual_name, values, errors[0], _choices(errors))) from None


class Document(Spec, metaclass=_Spoken):
    """A whole document, read from a file, from text or from plain Python values; raises DocumentError."""

    usual_name: ClassVar[str] = "document"
    """What messages call a document that was not read from a file."""
    _path: str = PrivateAttr("")

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, wherever they were read from."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    @property
    def where(self) -> str:
        """What begins a message about this document: the path it was read from, or its usual name."""
        return self._path or self.usual_name

    @classmethod
    @typed
    def read(cls, path: str | Path) -> Self:
        """The document in a JSON file; raises DocumentError."""
        document = cls.of(cls.read_values(path), str(path))
        document._path = str(path)
        return document

    @classmethod
    def read_values(cls, path: str | Path) -> Any:
        """The plain values in a JSON file, whether they are a document or not; raises DocumentError."""
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise DocumentError(f"{path}: no such file. Check the path.") from None
        except IsADirectoryError:
            raise DocumentError(f"{path} must be a JSON file; got a directory.") from None
        except UnicodeDecodeError as error:
            raise DocumentError(f"{path}: byte {error.start} is not UTF-8 text. Save the file as UTF-8.") from None
        except OSError as error:
            raise DocumentError(f"{path} cannot be read: {error.strerror}.") from None
        return cls.values_of(text, str(path))

    @classmethod
    def values_of(cls, text: str, where: str) -> Any:
        """The plain values in some JSON text."""
        return _plain_values(text, where)

    @classmethod
    @typed
    def parse(cls, text: str, where: str = "document") -> Self:
        """The document in some JSON text; `where` begins every message."""
        return cls.of(cls.values_of(text, where), where)

    @classmethod
    @typed
    def of(cls, values: Any, where: str = "document") -> Self:
        """The document in plain values (dictionaries, lists, numbers, text)."""
        if not isinstance(values, dict):
            raise DocumentError(f"{where} must be a JSON object with named fields; got {_shown(values)}.")
        try:
            return cls.model_validate_json(json.dumps(values))
        except ValidationError as error:
            errors = error.errors(include_url=False)
            raise DocumentError(_sentence(cls, where, values, errors[0], _choices(errors))) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise DocumentError(f"{where} must hold plain JSON values: {error}.") from None

    def to_json(self) -> str:
        """The document as indented JSON text, every default written out."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def _is_plain(values: Any) -> bool:
    """Whether values could stand in a JSON file."""
    try:
        json.dumps(values)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _plain_values(text: str, where: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in names:
            if names.count(name) > 1:
                raise DocumentError(f'{where}: the key "{name}" stands twice in one object. Keep one of them.')
        return dict(pairs)

    def refuse(name: str) -> NoReturn:
        raise DocumentError(f"{where}: {name} is not a JSON number. Write a finite number, or null for none.")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{where}: line {error.lineno}, column {error.colno}: {error.msg}. The file must be JSON.") from None
    except (RecursionError, ValueError) as error:
        raise DocumentError(f"{where}: the file must be JSON of reasonable depth and numbers: {type(error).__name__}.") from None


def _path(values: Any, location: tuple[int | str, ...], ends_named: bool = True) -> str:
    """The JSON path of a pydantic location, which also names union members that the document does not have.

    ends_named: the last part is a field of the document, though it may not have it.
    """
    path, here = "", values
    for position, part in enumerate(location):
        last = ends_named and position == len(location) - 1
        if isinstance(part, int):
            path += f"[{part}]"
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


def _choices(errors: list[Any]) -> str:
    """The names that the place of the first error would also take, such as "auto" beside a number."""
    others = [error for error in errors[1:] if error["loc"][:-1] == errors[0]["loc"][:-1] and error["type"] == "literal_error"]
    return "".join(f", or {error['ctx']['expected']}" for error in others)


def _sentence(model: type[BaseModel], where: str, values: Any, error: Any, choices: str = "") -> str:
    location, kind = error["loc"], error["type"]
    if kind == "json_invalid":
        return f"{where} must hold plain JSON values: {error['ctx']['error']}."
    path = _path(values, location, ends_named=kind != "value_error")
    place = f"{where}: {path}" if path else where
    if kind == "extra_forbidden":
        return f"{place} is not a known field.{did_you_mean(str(location[-1]), _known_fields(model, values, location))}"
    if kind == "missing":
        return f'{place} is missing. Add "{location[-1]}".'
    if kind == "value_error":
        message = str(error["ctx"]["error"])
        return f"{place}: {message}" if path else f"{where}: {message}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_kind(place, _at(values, location), str(error.get("ctx", {}).get("expected_tags", "")))
    if kind == "literal_error":
        known = [name.strip(" '") for name in error["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"{place} must be one of {', '.join(known)}; got {_shown(error['input'])}.{_nearest(error['input'], known)}"
    return f"{place} must be {_rule(error)}{choices.replace(chr(39), chr(34))}; got {_shown(error['input'])}."


def _unknown_kind(place: str, got: Any, expected: str) -> str:
    known = [name.strip(" '") for name in expected.split(",") if name.strip()]
    if isinstance(got, str):
        return f"{place} must be a known name; got {_shown(got)}.{did_you_mean(got, known)}"
    if not isinstance(got, dict):
        return f"{place} must be an object with named fields; got {_shown(got)}."
    if "kind" not in got:
        return f'{place}.kind is missing. Add "kind".'
    return f"{place}.kind must be a known name; got {_shown(got['kind'])}.{did_you_mean(str(got['kind']), known)}"


def _nearest(value: Any, known: list[str]) -> str:
    suggestion = did_you_mean(str(value), known)
    return suggestion if suggestion.startswith(" Did") else ""


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


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _known_fields(model: type[BaseModel], values: Any, location: tuple[int | str, ...]) -> list[str]:
    """The fields of the object in which an unknown key stands, found by asking the models along the path."""
    candidates: list[type[BaseModel]] = [model]
    here = values
    for part in location[:-1]:
        if isinstance(part, str):
            inner = [
                found for owner in candidates if part in owner.model_fields for found in _models_in(owner.model_fields[part].annotation)
            ]
            candidates = inner or candidates
        here = _at(here, (part,))
    kind = here.get("kind") if isinstance(here, dict) else None
    exact = [owner for owner in candidates if _kind_of(owner) == (kind or "hidden")]
    owners = exact or [owner for owner in candidates if kind in _kinds(owner)] or candidates
    return list(dict.fromkeys(name for owner in owners for name in owner.model_fields))


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return getattr(field.annotation, "__args__", ()) if field is not None else ()


def _kind_of(model: type[BaseModel]) -> Any:
    kinds = _kinds(model)
    return kinds[0] if len(kinds) == 1 else None


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models_in(argument)]
