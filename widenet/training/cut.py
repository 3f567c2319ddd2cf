"""The validation part that a training cuts off a dataset without one, and where it lies."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from widenet.data.dataset import Dataset
from widenet.data.split import num_moving, split
from widenet.data.words import Words
from widenet.errors import CheckpointError
from widenet.stores.durable import appearing
from widenet.training.checkpoint import writing
from widenet.training.existing_run import CUT, DATA
from widenet.training.run_path import beside

_SHARES = (0.1, 0.25)
"""Shares of each user's items that are set aside: the second where nobody has enough for the first."""


@dataclass(frozen=True)
class Cut:
    """How a dataset with a validation part was made of one without; a run keeps it in `CUT`.

    Attributes:
        examples: Digest of the dataset without the part.
        field: The field that was divided.
        share: Share of each example's entries in the part, chosen at random; None: the last entry of each.
            0: nobody has enough entries, and the dataset is as it was.
    """

    examples: str
    field: str
    share: float | None

    @classmethod
    def of(cls, dataset: Dataset, field: str) -> "Cut":
        """Choose how to cut a field without a validation part: by its order or times, else at random."""
        known, counts = dataset.field(field), dataset.entry_counts(field, slice(None))
        share: float | None = next((each for each in _SHARES if num_moving(counts, counts, each).any()), 0.0)
        if (known.kind == "sequence" or known.has_times) and counts.max(initial=0) > 1:
            share = None
        return cls(dataset.digest, field, share)

    @classmethod
    def read(cls, folder: Path) -> "Cut | None":
        """Read how the dataset of a folder was made; None if no training has cut it.

        Raises:
            CheckpointError: The file is damaged.
        """
        path = folder / CUT
        if not path.is_file():
            return None
        try:
            cut = cls(**json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError, RecursionError):
            raise CheckpointError("is damaged", place=path) from None
        are_texts = isinstance(cut.examples, str) and isinstance(cut.field, str)
        if not are_texts or cut.share not in (None, 0, *_SHARES):
            raise CheckpointError("is damaged", place=path)
        return cut

    def said(self, words: Words) -> str:
        """Say which entries are set aside, in the words of the dataset."""
        feature = words.feature(self.field)
        if self.share is None:
            return f"The last {feature} of each {words.example} is"
        name = "tenth" if self.share == _SHARES[0] else "quarter"
        return f"A random {name} of each {words.example}'s {feature}s is"

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `split` that set the part aside; none if nobody has enough entries."""
        if self.share == 0:
            return {}
        return {"field": self.field} | (
            {"validation_last": 1} if self.share is None else {"validation": self.share}
        )

    def make(self, dataset: Dataset, folder: Path) -> None:
        """Make the dataset with the validation part in a folder, unless it is there already.

        Raises:
            DataError: The dataset is damaged, or the folder cannot be written.
        """
        if self.options and not (folder / DATA).is_dir():
            split(dataset, folder / DATA, **self.options)

    def note(self, folder: Path) -> None:
        """Say in a folder how its dataset is made; raises CheckpointError."""
        with writing(folder), appearing(folder / CUT) as file:
            file.write((json.dumps(asdict(self), indent=2) + "\n").encode())


def take(dataset: Dataset, path: Path, new: Path) -> None:
    """Move the dataset that was made for the run at a path into the folder that is, or becomes, the run.

    Raises:
        OSError: The system refuses.
    """
    if dataset.path.parent == beside(path):
        shutil.rmtree(new / DATA, ignore_errors=True)
        for name in (CUT, DATA):  # in this order: a dataset beside `CUT` may be removed with its run
            (beside(path) / name).rename(new / name)
    shutil.rmtree(beside(path), ignore_errors=True)


def taken(dataset: Dataset, path: Path) -> Dataset:
    """Return a dataset where it lies now that the run at a path has begun."""
    return Dataset.open(path / DATA) if dataset.path.parent == beside(path) else dataset
