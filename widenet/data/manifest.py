"""The manifest of a dataset directory: its fields, parts, counts and checksums; does not load torch."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic import Field as Limits

from widenet.data.words import Words, words_of
from widenet.errors import DataError
from widenet.pictures.html import Html, table

FORMAT_VERSION = 2
"""Format 2 adds a checksum of the manifest and digests of blocks of examples. Format 1 can still be read."""
FILE_NAME = "dataset.json"
MAX_WIDTH = 2**32

_FIRST_WITH_SHA256 = 2

Count = Annotated[int, Limits(ge=0)]
FileName = Annotated[str, Limits(pattern=r"^[^/\\\x00]+$")]
Part = Literal["train", "validation", "heldout"]
Facts = dict[str, JsonValue]
"""Origin of a dataset, for people. Code reads `WHOLE_NUMBERS` and what `words_of` reads."""
WHOLE_NUMBERS = "whole_numbers"
"""The fact that lists the fields whose ids were numbers in the sources; absent if there are none."""
PARTS: tuple[Part, ...] = ("train", "validation", "heldout")


def column(field: str, part: Part = "train") -> str:
    """The Arrow column of one part of a field: "items", "items.validation" or "items.heldout"."""
    return field if part == "train" else f"{field}.{part}"


def value_column(field: str, part: Part = "train") -> str:
    """The Arrow column of the values beside `column(field, part)`."""
    return f"{column(field, part)}.value"


def time_column(field: str, part: Part = "train") -> str:
    """The Arrow column of the times beside `column(field, part)`."""
    return f"{column(field, part)}.time"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Field(_Frozen):
    """A field of the examples: sparse features, a sequence of features, or a dense row of numbers."""

    name: str
    kind: Literal["sparse", "dense", "sequence"]
    width: Annotated[int, Limits(ge=1, le=MAX_WIDTH)]
    """Number of features (sparse, sequence) or of numbers in a row (dense)."""
    num_entries: dict[Part, Count]
    """Stored entries of each part that exists, over all examples."""
    has_values: bool = False
    """Whether entries have values; without, all values are 1. Always true for a dense field."""
    has_times: bool = False
    """Whether entries have times, which are only used by splits."""
    min_value: float = 1.0
    max_value: float = 1.0
    vocabulary: FileName | None = None
    """File name of the feature names beside the manifest."""
    described: dict[str, Annotated[int, Limits(ge=1)]] = {}
    """Number of attributes of each description of the features, by name."""

    @model_serializer(mode="wrap")
    def _without_descriptions(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave descriptions out where there are none, as earlier versions wrote fields."""
        contents: dict[str, Any] = serialized(self)
        if not self.described:
            del contents["described"]
        return contents

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that exist, in the order train, validation, heldout."""
        return tuple(part for part in PARTS if part in self.num_entries)

    def without(self, path: Path, part: Part) -> str:
        """Say that this field of the dataset at a path has no such part."""
        return f"{path}: field {self.name!r} has no {part} part, only {', '.join(self.parts)}"


class Blocks(_Frozen):
    """Digests of the blocks of a file of examples, to check any part of it before its first use."""

    size_bytes: Annotated[int, Limits(ge=1)]
    """Length of every block but the last."""
    sha256: list[str]
    """The digest of each block, in order."""
    bodies: list[tuple[Count, Count]]
    """Byte range [start, stop) of the rows of each record batch, ascending."""
    sha256_outside_bodies: str
    """Digest of all other bytes, which Arrow reads when it opens the file."""


class File(_Frozen):
    """A file of the directory, as it was published."""

    size_bytes: Count
    sha256: str
    num_rows: Count
    blocks: Blocks | None = None
    """Only for files of examples, from format 2 on."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.blocks is not None:
            expected = -(-self.size_bytes // self.blocks.size_bytes)
            edges = [0, *(edge for body in self.blocks.bodies for edge in body), self.size_bytes]
            if len(self.blocks.sha256) != expected or edges != sorted(edges):
                raise ValueError(f"blocks must divide {self.size_bytes:,} bytes")
        return self


class Manifest(_Frozen):
    """The contents of a dataset directory."""

    format_version: Annotated[int, Limits(ge=1)] = FORMAT_VERSION
    name: str
    num_examples: Count
    has_weights: bool = False
    fields: Annotated[dict[str, Field], Limits(min_length=1)]
    files: dict[FileName, File]
    source: Facts = {}

    @property
    def example_files(self) -> list[str]:
        """Names of the files that hold the examples, in order."""
        return sorted(name for name in self.files if name.startswith("examples-"))

    @property
    def words(self) -> Words:
        """What people call its rows and features."""
        return words_of(self.fields, self.source)

    @property
    def entries_per_example(self) -> dict[str, float]:
        """Mean number of stored entries in the training part of an example, by sparse field."""
        count = max(self.num_examples, 1)
        return {
            name: field.num_entries.get("train", 0) / count
            for name, field in self.fields.items()
            if field.kind != "dense"
        }

    def as_table(self) -> Html:
        """A table with a row for each field: kind, width, values, and stored entries of each part."""
        parts = [part for part in PARTS if any(part in field.num_entries for field in self.fields.values())]
        rows = []
        for field in self.fields.values():
            values = f"{field.min_value:g} to {field.max_value:g}" if field.has_values else "none"
            entries = [f"{field.num_entries[part]:,}" if part in field.num_entries else "" for part in parts]
            rows.append([field.name, field.kind, f"{field.width:,}", values, *entries])
        return table(["field", "kind", "width", "values", *parts], rows)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of a dataset directory and check the sizes of all files.

        `contents.verify` checks the contents of the files too.

        Raises:
            DataError: The directory or its manifest is missing, damaged or in a newer format, or a file has
                another size.
        """
        path = folder / FILE_NAME
        DataError.require(folder.exists(), "must be a dataset; it does not exist", place=folder)
        DataError.require(path.is_file(), f"must be a dataset; it has no {FILE_NAME}", place=folder)
        manifest = cls._parse(path)
        for name, file in manifest.files.items():
            check_size(folder / name, file.size_bytes)
        held = sum(manifest.files[name].num_rows for name in manifest.example_files)
        rule = f"num_examples must be what the files hold, {held:,}"
        DataError.require(held == manifest.num_examples, rule, place=path, value=manifest.num_examples)
        return manifest

    @classmethod
    def _parse(cls, path: Path) -> "Manifest":
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            stated = document.pop("sha256", None) if isinstance(document, dict) else None
            contents, actual = json.dumps(document), _sha256_of_contents(document)
        except (ValueError, RecursionError) as error:
            raise DataError(f"must be JSON; {error}", place=path) from error
        version = document.get("format_version") if isinstance(document, dict) else None
        if not isinstance(version, int) or version > FORMAT_VERSION:
            rule = f"format_version must be a whole number up to {FORMAT_VERSION}"
            raise DataError(rule, place=path, value=version)
        is_sound = stated == actual or (stated is None and version < _FIRST_WITH_SHA256)
        DataError.require(is_sound, "is damaged: its sha256 is not that of its contents", place=path)
        try:
            return cls.model_validate_json(contents)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(step) for step in first["loc"])
            raise DataError(first["msg"], place=f"{path}: {place}", value=first["input"]) from error

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, and thereby of every file: equal for equal directories."""
        return _sha256_of_contents(self.model_dump(mode="json"))

    def write(self, folder: Path) -> None:
        """Write `dataset.json` into a folder that is not yet published."""
        contents = self.model_dump(mode="json")
        text = json.dumps({**contents, "sha256": _sha256_of_contents(contents)}, indent=2, ensure_ascii=False)
        (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")


def _sha256_of_contents(contents: Any) -> str:
    """The checksum of a manifest's contents."""
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_size(path: Path, size_bytes: int) -> None:
    """Raise DataError unless a file of a dataset exists and has this size."""
    DataError.require(path.is_file(), f"must exist, as {FILE_NAME} says", place=path)
    actual = path.stat().st_size
    DataError.require(actual == size_bytes, f"must have {size_bytes:,} bytes", place=path, value=actual)
