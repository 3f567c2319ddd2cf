"""Cuts a validation part off a dataset without one for the default training, and notes how.

One process of a group does so while the others wait.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from widenet.data.dataset import Dataset
from widenet.data.split import num_moving, split
from widenet.data.words import Words
from widenet.errors import CheckpointError
from widenet.parallel.group import (
    by_all,
    by_some,
    check_agreement,
    device_for,
    exchange_for,
    is_leader,
    join,
    num_processes,
)
from widenet.runs.machines import meet
from widenet.runs.run_arguments import TrainArguments
from widenet.stores.runs import RunMirror
from widenet.training.checkpoint import leads_folder
from widenet.training.facts import facts_of_dataset
from widenet.training.run_path import CUT, DATA, beside, check, hidden, write_whole

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
        write_whole(folder / CUT, (json.dumps(asdict(self), indent=2) + "\n").encode())


@contextmanager
def cut_anew(
    arguments: TrainArguments,
    path: Path,
    mirror: RunMirror | None,
    field: str,
    dataset: Dataset,
    say: Callable[[str], None],
) -> Iterator[Dataset]:
    """Give a dataset with a validation part, in a hidden folder beside the run, which takes it in.

    It is the dataset itself if nobody has enough entries. What has not become part of a run by the end of the
    block is removed.

    Raises:
        CheckpointError, DataError: The run cannot begin, or cannot take the dataset in.
        DisagreementError, GroupError: The processes of the group disagree, or one is lost.
    """
    cut, words = Cut.of(dataset, field), dataset.manifest.words

    def make() -> None:
        if mirror is None:
            check(path, [dataset.path], arguments.overwrite)
        if cut.options:
            made = stack.enter_context(hidden(path))
            cut.note(made)
            cut.make(dataset, made)
            sentence = f"{cut.said(words)} set aside for validation, in {path / DATA}."
        else:
            sentence = (
                f"Nobody has enough {words.feature(field)}s for a validation part: training keeps the last"
                " epoch's weights."
            )
        if is_leader():
            say(sentence)

    with ExitStack() as stack:
        yield _made(arguments, dataset, cut, beside(path), make, mirror)


def cut_again(arguments: TrainArguments, dataset: Dataset, run: Path, mirror: RunMirror | None) -> Dataset:
    """Return the dataset that a begun run was cut from a dataset; make it again if the run has it no more.

    It is the dataset itself if the run was not cut from it.

    Raises:
        CheckpointError, DataError: The run is damaged, or cannot be written.
        DisagreementError, GroupError: The processes of the group disagree, or one is lost.
    """
    cut = Cut.read(run)
    if cut is None or cut.examples != dataset.digest:
        return dataset
    return _made(arguments, dataset, cut, run, lambda: cut.make(dataset, run), mirror)


def _made(
    arguments: TrainArguments,
    dataset: Dataset,
    cut: Cut,
    folder: Path,
    make: Callable[[], None],
    mirror: RunMirror | None,
) -> Dataset:
    """Let one process of those that share a folder make a dataset in it, and open it in all."""
    device = device_for(arguments.device)
    join(device, arguments.timeout)
    exchange = exchange_for(num_processes(), device)
    facts = {**facts_of_dataset(dataset), "validation part": f"{cut.share} of {cut.field}"}
    check_agreement(exchange, facts)
    if mirror is not None:
        meet(mirror, exchange)
    by_some(exchange, leads_folder(exchange, mirror), make, "validation part")
    is_whole = cut.share == 0
    return dataset if is_whole else by_all(exchange, lambda: Dataset.open(folder / DATA), "validation part")
