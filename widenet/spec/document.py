"""Documents: JSON text becomes a frozen typed model, or one error about the first mistake."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    ValidationError,
    WrapSerializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from widenet.arguments import typed
from widenet.errors import ArgumentError, DocumentError, damage_of, did_you_mean
from widenet.regular_files import check_regular

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _Metaclass
else:
    _Metaclass = type(BaseModel)

Positive = Annotated[float, Field(gt=0)]
Rules = list[tuple[Any, ...]]
"""Settings of a layer, whether each breaks a rule, the rule, and maybe the value that breaks it."""

_SMALLEST, _LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""The smallest magnitude that a float32 holds in full precision, and the largest."""


class Spec(BaseModel):
    """A part of a document: frozen, strict, without unknown keys.

    Attribute docstrings become the documentation of its fields.
    """

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        defer_build=True,  # each part of a document would build all parts below it once more
    )

    @model_validator(mode="before")
    @classmethod
    def _has_known_fields(cls, values: Any) -> Any:
        """Refuse unknown fields: their message names the known ones."""
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for name in values if isinstance(values, dict) else ():
            if name not in known:
                rule = f"is not a known field.{did_you_mean(str(name), known)}"
                raise PydanticCustomError("unknown_field", "{rule}", {"rule": rule, "field": name})
        return values

    @field_validator("*")
    @classmethod
    def _fits_float32(cls, value: Any) -> Any:
        """Refuse numbers that would become infinite or zero as a float32, with which widenet computes."""
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(n, float) and n != 0 and not _SMALLEST <= abs(n) <= _LARGEST for n in numbers):
            raise PydanticCustomError("float32", "Input should be 0 or of magnitude 1.2e-38 to 3.4e38")
        return value


def _expanded(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _shortened(value: Any, handler: Any) -> Any:
    full = handler(value)
    return full["kind"] if isinstance(full, dict) and list(full) == ["kind"] else full


def kinds(specs: Any) -> list[str]:
    """Return the kinds of a spec, or of a union of specs in its order."""
    members = get_args(specs) or (specs,)
    return [kind for spec in members for kind in get_args(spec.model_fields["kind"].annotation)]


def named(union: Any) -> Any:
    """Return the field type of a union of specs that `kind` tells apart.

    Where its defaults do, a spec may be written as a bare name: "tanh" for {"kind": "tanh"}.
    """
    choice, names = Annotated[union, Discriminator("kind")], Literal[tuple(kinds(union))]
    written = BeforeValidator(_expanded, json_schema_input_type=names | choice)
    return Annotated[choice, written, WrapSerializer(_shortened)]


class _DocumentMeta(_Metaclass):
    """Lets `Network(layers=[...])` take plain lists and dictionaries and raise one error, as files do."""

    def __call__(self, *args: Any, **values: Any) -> Any:
        assert issubclass(self, Document)
        if args:
            raise ArgumentError(f"{self.__name__.removesuffix('Spec')} takes its fields by name")
        return self.of(values, self.usual_name)


class Document(Spec, metaclass=_DocumentMeta):
    """A whole document, read from a file, from text or from plain Python values; raises DocumentError."""

    usual_name: ClassVar[str] = "document"
    """Name in messages of a document that was not read from a file."""
    _path: str = PrivateAttr("")

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same values; where they were read from does not matter."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    @property
    def where(self) -> str:
        """The document's place in errors: its path, or its usual name."""
        return self._path or self.usual_name

    @classmethod
    @typed
    def read(cls, path: str | Path) -> Self:
        """Read a document from a JSON file; raises DocumentError."""
        return cls.of(cls.read_values(path), str(path))

    @classmethod
    def read_values(cls, path: str | Path) -> Any:
        """Read plain values from a JSON file without checking them; raises DocumentError."""
        check_regular(Path(path), DocumentError)
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise DocumentError(f"cannot be read: {damage_of(error)}", place=path) from None
        return cls.values_of(text, str(path))

    @classmethod
    def values_of(cls, text: str, where: str) -> Any:
        """Return the plain values of JSON text; raises DocumentError."""

        def refuse(name: str) -> None:
            raise ValueError(f"{name} is no number")

        try:
            return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
        except (ValueError, RecursionError) as error:  # also a key that stands twice, or too many digits
            rule = f"is not JSON: {getattr(error, 'msg', error)}"
            place = {"line": getattr(error, "lineno", None), "column": getattr(error, "colno", None)}
            raise DocumentError(rule, place=where, **place) from None

    @classmethod
    @typed
    def parse(cls, text: str, where: str = "document") -> Self:
        """Make a document from JSON text; `where` is its place in errors."""
        return cls.of(cls.values_of(text, where), where)

    @classmethod
    @typed
    def of(cls, values: Any, where: str = "document") -> Self:
        """Make a document from plain values, or specs: dictionaries, lists, numbers, text."""
        DocumentError.require(
            isinstance(values, dict), "must be a JSON object with named fields", place=where, value=values
        )
        try:
            document = cls.model_validate(values)
        except ValidationError as error:
            raise first_mistake(where, values, error.errors(include_url=False)[0]) from None
        except DocumentError as error:  # of a rule; its place is a JSON path
            error.place = where if error.place is None else f"{where}: {error.place}"
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise DocumentError(f"must hold plain JSON values: {error}", place=where) from None
        document._path = "" if where == Document.usual_name else where
        return document

    def to_json(self) -> str:
        """Return the document as indented JSON text with every default."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def leaves_of(values: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every simple value within others and its place, such as `layers[taste].units`.

    Objects with a name stand in a list under their names.
    """
    if isinstance(values, Mapping):
        for name, inner in values.items():
            yield from leaves_of(inner, f"{place}.{name}" if place else str(name))
    elif isinstance(values, list) and values and all(isinstance(inner, Mapping) for inner in values):
        for position, inner in enumerate(values):
            yield from leaves_of(inner, f"{place}[{inner.get('name', position)}]")
    else:
        yield place, values


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object from its keys and values, for `json.loads`; raises ValueError for a key that repeats."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in values:
            raise ValueError(f'the key "{name}" stands twice in one object')
        values[name] = value
    return values


def first_mistake(where: str, values: Any, error: Any) -> DocumentError:
    """Return the error for the first mistake in the values of a document.

    Args:
        where: The document.
        values: The document's plain values.
        error: Pydantic's first error.
    """
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    location = (*error["loc"], context["field"]) if kind == "unknown_field" else error["loc"]
    path = _path(values, location)
    if kind == "missing":  # the document does not have the end of its path
        path = f"{path}.{location[-1]}".lstrip(".")
    place = f"{where}: {path}" if path else where
    known, tag = context.get("expected_tags", "").replace("'", "").split(", "), context.get("tag", "")
    rules = {
        "missing": "is missing",
        "unknown_field": error["msg"],
        "value_error": context.get("error"),
        "union_tag_invalid": f'"{tag}" is not a known kind.{did_you_mean(tag, known)}',
    }
    if kind in rules:
        return DocumentError(str(rules[kind]), place=place)
    if kind == "union_tag_not_found" and isinstance(value, dict):
        return DocumentError("is missing or no text", place=f"{place}.kind")
    rule = error["msg"].replace("valid tuple", "list").replace("Input should ", "must ")
    return DocumentError(rule[0].lower() + rule[1:], place=place, value=value)


def _path(values: Any, location: Sequence[int | str]) -> str:
    """Return the JSON path of a pydantic location, without the union members and positions that it adds."""
    path, here = "", values
    for part in location:
        if isinstance(part, int) and isinstance(here, list | tuple):
            path, here = f"{path}[{part}]", here[part]
        elif isinstance(here, dict) and part in here:
            path, here = f"{path}.{part}".lstrip("."), here[part]
    return path
