"""Documents: JSON text becomes a frozen typed model, or one sentence about the first mistake."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from widenet.arguments import typed
from widenet.errors import ArgumentError, DocumentError
from widenet.regular_files import check_regular
from widenet.spec.mistakes import first_mistake, shown
from widenet.spec.syntax import RepeatedKeyError, SyntaxMistake, unique

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass as _Metaclass
else:
    _Metaclass = type(BaseModel)

_MOST_BYTES = 2**26
"""Largest size of a document, in bytes."""
_SMALLEST, _LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127
"""The smallest magnitude that a float32 holds in full precision, and the largest."""


class Spec(BaseModel):
    """A part of a document: frozen, strict, without unknown keys.

    Attribute docstrings become the documentation of its fields.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _fits_float32(cls, value: Any) -> Any:
        """Refuse numbers that would become infinite or zero as a float32, with which widenet computes."""
        numbers = [
            each for each in (value if isinstance(value, tuple) else [value]) if isinstance(each, float)
        ]
        if any(number != 0 and not _SMALLEST <= abs(number) <= _LARGEST for number in numbers):
            raise PydanticCustomError("float32", "a number of float32")
        return value


class _DocumentMeta(_Metaclass):
    """Lets `Network(layers=[...])` take plain lists and dictionaries and raise one sentence, as files do."""

    def __call__(self, *args: Any, **values: Any) -> Any:
        assert issubclass(self, Document)
        if args:
            name = self.__name__.removesuffix("Spec")
            remedy = f"Give plain values to {name}.of, the path of a file to {name}.read"
            raise ArgumentError(
                f"{name} takes its fields by name; got {shown(args[0])}. {remedy}. See"
                f" `help(widenet.{name})`."
            )
        try:
            return super().__call__(**values)
        except ValidationError as error:
            if _is_plain(values):
                return self.of(values, self.usual_name)
            raise DocumentError(
                first_mistake(self, self.usual_name, values, error.errors(include_url=False))
            ) from None


class Document(Spec, metaclass=_DocumentMeta):
    """A whole document, read from a file, from text or from plain Python values; raises DocumentError."""

    usual_name: ClassVar[str] = "document"
    """Name in messages of a document that was not read from a file."""
    other_name: ClassVar[str] = ""
    """The kind of document that people confuse with this one."""
    other_remedy: ClassVar[str] = "Give the network first, then the training."
    """What to do about it."""
    _path: str = PrivateAttr("")

    def __eq__(self, other: object) -> bool:
        """Return whether both have the same values; where they were read from does not matter."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    @property
    def where(self) -> str:
        """The beginning of a message about this document: its path, or its usual name."""
        return self._path or self.usual_name

    @classmethod
    @typed
    def read(cls, path: str | Path) -> Self:
        """Read a document from a JSON file; raises DocumentError."""
        document = cls.of(cls.read_values(path), str(path))
        document._path = str(path)
        return document

    @classmethod
    def read_values(cls, path: str | Path) -> Any:
        """Read plain values from a JSON file without checking them; raises DocumentError."""
        check_regular(Path(path), DocumentError)
        try:
            if Path(path).stat().st_size > _MOST_BYTES:
                raise DocumentError(
                    f"{path} must have at most {_MOST_BYTES:,} bytes; it is larger. Check the path."
                )
            text = Path(path).read_text(encoding="utf-8-sig")
        except FileNotFoundError:
            raise DocumentError(f"{path}: no such file. Check the path.") from None
        except IsADirectoryError:
            raise DocumentError(f"{path} must be a JSON file; got a directory.") from None
        except UnicodeDecodeError as error:
            raise DocumentError(
                f"{path}: byte {error.start} is not UTF-8 text. Save the file as UTF-8."
            ) from None
        except OSError as error:
            raise DocumentError(f"{path} cannot be read: {error.strerror}.") from None
        return cls.values_of(text, str(path))

    @classmethod
    def values_of(cls, text: str, where: str) -> Any:
        """Return the plain values of JSON text."""
        return _plain_values(text, where)

    @classmethod
    @typed
    def parse(cls, text: str, where: str = "document") -> Self:
        """Make a document from JSON text; `where` begins every message."""
        return cls.of(cls.values_of(text, where), where)

    @classmethod
    @typed
    def of(cls, values: Any, where: str = "document") -> Self:
        """Make a document from plain values: dictionaries, lists, numbers, text."""
        if not isinstance(values, dict):
            raise DocumentError(f"{where} must be a JSON object with named fields; got {shown(values)}.")
        if cls.is_other(values):
            stands = f"stands where the {cls.usual_name.removesuffix('.json')} document belongs"
            raise DocumentError(f"{where} is a {cls.other_name} document and {stands}. {cls.other_remedy}")
        try:
            document = cls.model_validate_json(json.dumps(values))
        except ValidationError as error:
            raise DocumentError(first_mistake(cls, where, values, error.errors(include_url=False))) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise DocumentError(f"{where} must hold plain JSON values: {error}.") from None
        document._path = "" if where == Document.usual_name else where
        return document

    @classmethod
    def is_other(cls, values: dict[str, Any]) -> bool:
        """Return whether plain values are a document of the kind that people confuse with this one."""
        del values
        return False

    def to_json(self) -> str:
        """Return the document as indented JSON text with every default."""
        return json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


def _is_plain(values: Any) -> bool:
    """Return whether JSON can express the values."""
    try:
        json.dumps(values)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _plain_values(text: str, where: str) -> Any:
    def refuse(name: str) -> NoReturn:
        raise DocumentError(f"{where}: {name} is not a JSON number. Write a finite number, or null for none.")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise DocumentError(f"{where}: {SyntaxMistake.of(error).after(text)}") from None
    except RepeatedKeyError as error:
        raise DocumentError(f"{where}: {error}. Keep one of them.") from None
    except RecursionError:
        raise DocumentError(f"{where}: lists and objects are nested too deeply. Check the file.") from None
    except ValueError:
        raise DocumentError(f"{where}: a number has too many digits to be read. Shorten it.") from None
