"""Vocabularies that an ingest keeps: the features of an earlier dataset or of a run, each at its index."""

from pathlib import Path

from widenet.data.vocabulary import Vocabulary
from widenet.data.writer import vocabulary_file
from widenet.errors import DataError


class KnownFeatures:
    """The vocabularies in a directory of a dataset or a run; none without a directory."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def of(self, field: str) -> Vocabulary | None:
        """That of a field; None where the directory has none."""
        if self.folder is None:
            return None
        places = [self.folder / vocabulary_file(field), self.folder / "vocabulary" / f"{field}.arrow"]
        return next((Vocabulary.open(path) for path in places if path.is_file()), None)

    def check(self, field: str) -> None:
        """Raise DataError where there is a directory without a vocabulary of a field."""
        if self.folder is not None and self.of(field) is None:
            rule = f'--vocabulary must be a run or a dataset with a vocabulary of "{field}"; it has none'
            raise DataError(f"{self.folder}: {rule}. Name another directory, or the field that it has with --field.")
