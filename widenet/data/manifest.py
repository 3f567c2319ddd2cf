"""The manifest of a dataset directory: what it holds, how wide, how many, with checksums; loads no torch."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, model_validator
from pydantic import Field as Limits

from widenet.errors import DataError
from widenet.pictures.html import Html, table

FORMAT_VERSION = 2
"""2: the manifest has a checksum of its own, and examples have digests of blocks. Format 1 has neither,
and is read too.
"""
FILE_NAME = "dataset.json"
MAX_WIDTH = 2**32

_FIRST_WITH_SHA256 = 2

Count = Annotated[int, Limits(ge=0)]
FileName = Annotated[str, Limits(pattern=r"^[^/\\\x00]+$")]
Part = Literal["train", "validation", "heldout"]
Facts = dict[str, JsonValue]
"""How a dataset was made: for people, read by no code."""
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
    """One field of every example: a sparse row of features, a sequence of features in order, or a dense
    row of numbers.
    """

    name: str
    kind: Literal["sparse", "dense", "sequence"]
    width: Annotated[int, Limits(ge=1, le=MAX_WIDTH)]
    """Number of features (sparse, sequence) or of numbers in a row (dense)."""
    num_entries: dict[Part, Count]
    """Stored entries of each part that exists, over all examples."""
    has_values: bool = False
    """Whether sparse entries carry values; absent means that all are one. Always true for a dense field."""
    has_times: bool = False
    """Whether entries carry times, which splits read and trainings do not."""
    min_value: float = 1.0
    max_value: float = 1.0
    vocabulary: FileName | None = None
    """File name of the feature names beside the manifest."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that exist, in the order train, validation, heldout."""
        return tuple(part for part in PARTS if part in self.num_entries)


class Blocks(_Frozen):
    """Digests with which any part of a file of examples is compared before its first use."""

    size_bytes: Annotated[int, Limits(ge=1)]
    """Length of every block but the last."""
    sha256: list[str]
    """A digest a block, in order."""
    bodies: list[tuple[Count, Count]]
    """Where the rows of each record batch lie, [start, stop) in bytes, ascending."""
    sha256_outside_bodies: str
    """Of all other bytes, in order: what Arrow reads when it opens the file."""


class File(_Frozen):
    """One file of the directory, as it was published."""

    size_bytes: Count
    sha256: str
    num_rows: Count
    blocks: Blocks | None = None
    """Of files of examples, from format 2 on."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.blocks is not None:
            expected = -(-self.size_bytes // self.blocks.size_bytes)
            edges = [0, *(edge for body in self.blocks.bodies for edge in body), self.size_bytes]
            if len(self.blocks.sha256) != expected or edges != sorted(edges):
                raise ValueError(f"blocks must divide {self.size_bytes:,} bytes")
        return self


class Manifest(_Frozen):
    """What a dataset directory holds."""

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
    def entries_per_example(self) -> dict[str, float]:
        """Mean number of stored entries in the training part, by field of features."""
        count = max(self.num_examples, 1)
        return {
            name: field.num_entries.get("train", 0) / count
            for name, field in self.fields.items()
            if field.kind != "dense"
        }

    def as_table(self) -> Html:
        """A row a field: kind, width, values, and stored entries of each part."""
        parts = [part for part in PARTS if any(part in field.num_entries for field in self.fields.values())]
        rows = []
        for field in self.fields.values():
            values = f"{field.min_value:g} to {field.max_value:g}" if field.has_values else "none"
            entries = [f"{field.num_entries[part]:,}" if part in field.num_entries else "" for part in parts]
            rows.append([field.name, field.kind, f"{field.width:,}", values, *entries])
        return table(["field", "kind", "width", "values", *parts], rows)

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest of a dataset directory; sizes of all files are checked, their contents are not (see
        `contents.verify`).

        Raises DataError when the directory or its manifest is missing, broken, of a newer format, or a file
        has another size.
        """
        path = folder / FILE_NAME
        remedy = "Make one with `widenet.ingest(SOURCE, out=DIR)`."
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise DataError(f"{folder}: a dataset must be a directory; this {what}. {remedy}")
        if not path.is_file():
            raise DataError(f"{folder}: a dataset must hold {FILE_NAME}; it is missing. {remedy}")
        manifest = cls._parse(path)
        for name, file in manifest.files.items():
            check_size(folder / name, file.size_bytes)
        held = sum(manifest.files[name].num_rows for name in manifest.example_files)
        if held != manifest.num_examples:
            rule = f"num_examples must be what the files hold, {held:,}"
            raise DataError(
                f"{path}: {rule}; got {manifest.num_examples:,}. Restore the file, or ingest again."
            )
        return manifest

    @classmethod
    def _parse(cls, path: Path) -> "Manifest":
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            stated = document.pop("sha256", None) if isinstance(document, dict) else None
            contents, found = json.dumps(document), _sha256_of_contents(document)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: must be JSON; {error}. Restore the file, or ingest again.") from error
        version = document.get("format_version") if isinstance(document, dict) else None
        if not isinstance(version, int):
            raise DataError(
                f"{path}: format_version must be a whole number; got {version!r}. Restore the file, or ingest"
                " again."
            )
        if version > FORMAT_VERSION:
            raise DataError(
                f"{path}: format_version must be at most {FORMAT_VERSION}; got {version}. Update widenet, or"
                " ingest again with this one."
            )
        if stated != found and (stated is not None or version >= _FIRST_WITH_SHA256):
            raise DataError(
                f"{path}: is damaged: its sha256 is not that of its contents. Restore the file, or ingest"
                " again."
            )
        try:
            return cls.model_validate_json(contents)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(step) for step in first["loc"])
            raise DataError(
                f"{path}: {place}: {first['msg']}; got {first['input']!r}. Restore the file, or ingest again."
            ) from error

    @property
    def digest(self) -> str:
        """SHA-256 of all that the manifest says, and thereby of every file: equal for equal directories."""
        return _sha256_of_contents(self.model_dump(mode="json"))

    def write(self, folder: Path) -> None:
        """Write `dataset.json` into a folder that is not yet published."""
        contents = self.model_dump(mode="json")
        text = json.dumps({**contents, "sha256": _sha256_of_contents(contents)}, indent=2, ensure_ascii=False)
        (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")


def _sha256_of_contents(contents: Any) -> str:
    """What a manifest says of itself, so that no changed byte of it is believed."""
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_size(path: Path, size_bytes: int) -> None:
    """Raise DataError unless a file of a dataset is there with that many bytes."""
    if not path.is_file():
        raise DataError(f"{path}: listed in {FILE_NAME} but missing. Restore it, or ingest again.")
    actual = path.stat().st_size
    if actual != size_bytes:
        raise DataError(
            f"{path}: must have {size_bytes:,} bytes; got {actual:,}. Restore it, or ingest again."
        )
