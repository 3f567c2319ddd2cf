"""Vocabularies of an earlier dataset or run, whose indices an ingest keeps."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from widenet.data.attributes import Attributes, aside_file, aside_schema, attributes_file
from widenet.data.manifest import FILE_NAME, Manifest
from widenet.data.vocabulary import Vocabulary, open_table
from widenet.data.writer import vocabulary_file
from widenet.errors import DataError, damage_of

RUN_FIELDS = "fields.json"
"""The file of a run with its fields and the SHA-256 of their vocabularies."""


def run_vocabulary(run: Path, field: str) -> Path:
    """The path of a field's vocabulary in a run directory."""
    return run / "vocabulary" / f"{field}.arrow"


def run_attributes(run: Path, field: str) -> Path:
    """The path of the attributes of a field's features in a run directory."""
    return run / "attributes" / f"{field}.arrow"


class KnownFeatures:
    """The vocabularies in the directory of a dataset or a run; empty without a directory."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def of(self, field: str) -> Vocabulary | None:
        """The vocabulary of a field; None if there is none."""
        found = self._find(field, vocabulary_file(field), run_vocabulary, "vocabulary_sha256")
        return None if found is None else Vocabulary.open(*found)

    def attributes(self, field: str) -> Attributes | None:
        """The attributes of a field's features; None if there are none."""
        names = self.of(field)
        found = self._find(field, attributes_file(field), run_attributes, "attributes_sha256")
        if names is None or found is None:
            return None
        return Attributes.open(found[0], len(names), found[1])

    def aside(self, field: str, schema: pa.Schema) -> list[pa.RecordBatch]:
        """The items beside the features of a dataset, with `aside_schema` of these attributes."""
        found = self._find(field, aside_file(field), lambda run, _: run / "aside", "aside_sha256")
        if found is None:
            return []
        table = open_table(found[0], "file of items", found[1])
        rule = f"must have the attributes of {attributes_file(field)}"
        DataError.require(table.schema.equals(aside_schema(schema)), rule, place=found[0])
        return list(table.to_batches())

    def _find(
        self, field: str, name: str, path_in_run: Callable[[Path, str], Path], fact: str
    ) -> tuple[Path, str | None] | None:
        """Find a file of a field, and the SHA-256 that is recorded of it.

        Args:
            field: The field.
            name: Name of the file in a dataset.
            path_in_run: Returns its path in a run.
            fact: Name of its SHA-256 in a run.
        """
        if self.folder is None:
            return None
        if (self.folder / FILE_NAME).is_file():
            stated = Manifest.read(self.folder).files.get(name)
            return None if stated is None else (self.folder / name, stated.sha256)
        path = path_in_run(self.folder, field)
        return (path, _recorded(self.folder, field, fact)) if path.is_file() else None

    def check(self, field: str) -> None:
        """Raise DataError if the directory does not exist or has no vocabulary of a field."""
        is_known = self.folder is None or self.of(field) is not None
        rule = f'must be a run or a dataset with a vocabulary of "{field}"'
        DataError.require(is_known, rule, option="vocabulary", value=str(self.folder))


def _recorded(run: Path, field: str, fact: str) -> str | None:
    """A SHA-256 that a run has recorded of a field; None if it has none."""
    try:
        digest = json.loads((run / RUN_FIELDS).read_text(encoding="utf-8"))[field].get(fact)
        return None if digest is None else str(digest)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"{run / RUN_FIELDS} is damaged: {damage_of(error)}.") from None
