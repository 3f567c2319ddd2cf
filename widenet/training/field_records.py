"""Records of a run about the fields of its dataset."""

import hashlib
import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.data.described import described_file
from widenet.data.known import run_attributes, run_vocabulary
from widenet.data.manifest import WHOLE_NUMBERS, sha256_of
from widenet.data.vocabulary import Vocabulary
from widenet.errors import CheckpointError, damage_of

KINDS = ("sparse", "dense", "sequence")
_BLOCK = 65_536


@dataclass(frozen=True)
class FieldRecord:
    """Facts of a dataset's field.

    Attributes:
        kind: "sparse", "dense" or "sequence".
        width: Number of features, or numbers of an example.
        min_value: Smallest stored value; 1 without values.
        max_value: Largest stored value; 1 without values.
        vocabulary_digest: SHA-256 over the ids of the features, in order; None without a vocabulary.
        vocabulary_sha256: SHA-256 of the run's vocabulary file; None without one.
        whole_numbers: Whether the ids of the features were numbers in the data.
        attributes_sha256: SHA-256 of the run's file of the features' attributes; None without one.
        described: Number of attributes of each description of the features, by name.
        described_sha256: SHA-256 of the dataset's file of descriptions; None without one.

    Raises:
        ValueError: No field can have these facts.
    """

    kind: str
    width: int
    min_value: float
    max_value: float
    vocabulary_digest: str | None
    vocabulary_sha256: str | None = None
    whole_numbers: bool = False
    attributes_sha256: str | None = None
    described: dict[str, int] = field(default_factory=dict)
    described_sha256: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or type(self.width) is not int or self.width < 1:
            raise ValueError(f"{self.kind} of {self.width}")
        if any(type(number) is not int or number < 1 for number in dict(self.described).values()):
            raise ValueError(f"{self.described} as described")
        if type(self.whole_numbers) is not bool:
            raise ValueError(f"{self.whole_numbers} as whole_numbers")
        if not (math.isfinite(self.min_value) and math.isfinite(self.max_value)):
            raise ValueError(f"{self.min_value} to {self.max_value}")


def record_of(dataset: Dataset, name: str) -> FieldRecord:
    """Return the record of a dataset's field."""
    stored = dataset.field(name)
    if stored.vocabulary is None:
        return FieldRecord(stored.kind, stored.width, stored.min_value, stored.max_value, None)
    attributes, descriptions = dataset.attributes(name), dataset.manifest.files.get(described_file(name))
    names, whole = dataset.vocabulary(name), dataset.manifest.source.get(WHOLE_NUMBERS, [])
    return FieldRecord(
        stored.kind,
        stored.width,
        stored.min_value,
        stored.max_value,
        digest_of(names),
        sha256_of(names.path),
        isinstance(whole, list) and name in whole,
        None if attributes is None else sha256_of(attributes.path),
        dict(stored.described),
        None if descriptions is None else descriptions.sha256,
    )


def copy_names(dataset: Dataset, run: Path, records: Mapping[str, FieldRecord]) -> None:
    """Copy the vocabularies and attributes of a run's fields into its directory; raises OSError."""
    (run / "vocabulary").mkdir()
    for name, record in records.items():
        if record.vocabulary_digest is not None:
            shutil.copyfile(dataset.vocabulary(name).path, run_vocabulary(run, name))
        if (attributes := dataset.attributes(name)) is not None:
            (run / "attributes").mkdir(exist_ok=True)
            shutil.copyfile(attributes.path, run_attributes(run, name))


def digest_of(vocabulary: Vocabulary) -> str:
    """Return the SHA-256 over the ids of a vocabulary, in order."""
    digest = hashlib.sha256()
    for start in range(0, len(vocabulary), _BLOCK):
        ids = vocabulary.ids(range(start, min(start + _BLOCK, len(vocabulary))))
        digest.update(json.dumps(ids).encode())
    return digest.hexdigest()


def write_records(path: Path, records: Mapping[str, FieldRecord]) -> None:
    """Write the records of a run's fields to a file; raises OSError."""
    facts = {name: asdict(record) for name, record in records.items()}
    path.write_text(json.dumps(facts, indent=2))


def read_records(path: Path) -> dict[str, FieldRecord]:
    """Read the records of a run's fields; raises CheckpointError if the file is missing or damaged."""
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        return {name: FieldRecord(**record) for name, record in records.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise CheckpointError(f"is damaged: {damage_of(error)}", place=path) from None
