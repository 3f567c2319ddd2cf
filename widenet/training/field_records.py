"""What a run remembers of the fields of its dataset, and how that is read back."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from widenet.data.dataset import Dataset
from widenet.data.manifest import sha256_of
from widenet.data.vocabulary import Vocabulary
from widenet.errors import CheckpointError

KINDS = ("sparse", "dense", "sequence")
_BLOCK = 65_536


@dataclass(frozen=True)
class FieldRecord:
    """What a run remembers of a field of its dataset; raises ValueError where that can be no field.

    vocabulary_digest: SHA-256 over the ids of its features in order; None where it had none.
    vocabulary_sha256: of the file that names them, as the run keeps it; None where an earlier widenet
    recorded none.
    """

    kind: str
    width: int
    min_value: float
    max_value: float
    vocabulary_digest: str | None
    vocabulary_sha256: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or type(self.width) is not int or self.width < 1:
            raise ValueError(f"{self.kind} of {self.width}")
        if not (math.isfinite(self.min_value) and math.isfinite(self.max_value)):
            raise ValueError(f"{self.min_value} to {self.max_value}")


def record_of(dataset: Dataset, name: str) -> FieldRecord:
    """What a run that trains on a dataset remembers of a field."""
    field = dataset.field(name)
    if field.vocabulary is None:
        return FieldRecord(field.kind, field.width, field.min_value, field.max_value, None)
    names = dataset.vocabulary(name)
    return FieldRecord(
        field.kind, field.width, field.min_value, field.max_value, digest_of(names), sha256_of(names.path)
    )


def digest_of(vocabulary: Vocabulary) -> str:
    """SHA-256 over the ids of a vocabulary, in order."""
    digest = hashlib.sha256()
    for start in range(0, len(vocabulary), _BLOCK):
        ids = vocabulary.ids(range(start, min(start + _BLOCK, len(vocabulary))))
        digest.update(json.dumps(ids).encode())
    return digest.hexdigest()


def write_records(path: Path, records: Mapping[str, FieldRecord]) -> None:
    """Write what a run remembers of its fields to a file; raises OSError."""
    path.write_text(json.dumps({name: asdict(record) for name, record in records.items()}, indent=2))


def read_records(path: Path) -> dict[str, FieldRecord]:
    """What a run remembers of its fields; raises CheckpointError where the file is missing or damaged."""
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        return {name: FieldRecord(**record) for name, record in records.items()}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise CheckpointError(f"{path} is damaged ({type(error).__name__}). Train again.") from None


def open_vocabulary(path: Path, record: FieldRecord) -> Vocabulary:
    """A vocabulary that a run keeps, compared with what the run remembers of it; raises DataError,
    CheckpointError.
    """
    names = Vocabulary.open(path, record.vocabulary_sha256)
    known = record.vocabulary_digest
    if record.vocabulary_sha256 is None and known is not None and digest_of(names) != known:
        raise CheckpointError(
            f"{path} is damaged: its ids are not those that the run was begun with. Copy it from the dataset"
            " again."
        )
    return names
