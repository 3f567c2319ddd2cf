"""A study's directory: what it searches, its trials, and which worker has which of them.

All that workers share is here, so they may be on several machines with a common file system.
"""

import fcntl
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError, DocumentError, FitError, OptionError, damage_of
from widenet.plan.layout import Layout
from widenet.stores.durable import force_all_to_disk, force_to_disk
from widenet.training.run_path import STUDY, TRIALS, hidden, is_study, writing
from widenet.tuning import journal
from widenet.tuning.rungs import Rungs, Trial
from widenet.tuning.space import SpaceSpec, from_values, layout_of
from widenet.tuning.suggest import suggestions

_MOST_STARTS = 3
"""Number of workers that a trial may cost: one whose workers end before its rung has failed after that."""


@dataclass(frozen=True)
class Facts:
    """What all trials of a study have in common; no worker goes on with another study.

    Attributes:
        space: The space, with the metric in its training document.
        examples: Digest of the dataset's examples.
        epochs: The epochs of each rung.
        reduction: See `Rungs`.
        seed: Seed of the suggestions.
        device: Kind of device.
    """

    space: dict[str, Any]
    examples: str
    epochs: list[int]
    reduction: int
    seed: int
    device: str


class Study:
    """An open study.

    Attributes:
        path: Its directory.
        facts: See `Facts`.
        space: Its space.
        rungs: Its rungs.
        metric: The metric by which trials are compared.
        journal: Its trials; lock it by `journal.alone`.
    """

    def __init__(self, path: Path, facts: Facts) -> None:
        self.path, self.facts = path, facts
        self.space = SpaceSpec.of(facts.space, str(path / STUDY))
        self.rungs = Rungs(tuple(facts.epochs), facts.reduction)
        evaluation = self.space.fixed_training.evaluation
        assert evaluation is not None, "a study begins with an evaluation"
        self.metric = evaluation.metric
        self.journal = journal.Journal(path, self.space, self.rungs)

    @classmethod
    def begin(cls, path: Path, facts: Facts, make: Callable[[Path], None] | None = None) -> "Study":
        """Make the directory of a new study.

        Args:
            path: The directory.
            facts: What its trials have in common.
            make: Called with a hidden folder that becomes the study, to put the dataset of its trials there.

        Raises:
            CheckpointError: The path is taken, another process begins a study there, or it cannot be written.
        """
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise _taken(path)
        with hidden(path) as folder, writing(path):
            for name in (TRIALS, "claims"):
                (folder / name).mkdir()
            journal.create(folder)
            if make is not None:
                make(folder)
            (folder / STUDY).write_text(f"{json.dumps(asdict(facts), indent=2)}\n", encoding="utf-8")
            force_all_to_disk(folder)
            _put(folder, path)
        return cls(path, facts)

    @classmethod
    def open(cls, path: Path) -> "Study":
        """Open a study; raises CheckpointError."""
        if not is_study(path):
            way = "Begin one with another `out`, and" if path.exists() else "To begin one,"
            raise CheckpointError(f"{path} holds no study to resume. {way} leave `resume` out.")
        try:
            facts = Facts(**json.loads((path / STUDY).read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{path / STUDY} is damaged: {damage_of(error)}. Restore it.") from None
        return cls(path, facts)

    def check_same(self, facts: Facts, data: Dataset) -> None:
        """Raise an error unless the study was begun with these facts.

        Raises:
            FitError: It was begun with other examples.
            OptionError, DocumentError: It was begun with another space or option.
        """
        mine = self.facts
        if mine.examples != facts.examples:
            raise FitError(
                f"{data.path} does not hold the examples that {self.path} was begun with. Resume with that"
                " dataset, or choose another `out`."
            )
        if mine.space != facts.space:
            raise DocumentError(
                f"{self.path} was begun with another space or `metric`, as {self.path / STUDY} has it."
                " Resume with that one, or choose another `out`."
            )
        names = {"epochs": "rungs", "reduction": "reduction", "seed": "seed", "device": "device"}
        for name, option in names.items():
            before, now = getattr(mine, name), getattr(facts, name)
            if before != now:
                raise OptionError(
                    f"`{option}` must be as {self.path} was begun: {before}; got {now}. Resume with that, or"
                    " choose another `out`."
                )

    def run(self, trial: Trial) -> Path:
        """Return the run directory of a trial."""
        return self.path / TRIALS / f"{trial.number:05d}"

    def layout(self, trial: Trial, dataset: Dataset) -> Layout:
        """Return the layout of a trial's documents."""
        return layout_of(self.space, dataset, from_values(trial.choices))

    def next_trial(self, num_trials: int, dataset: Dataset) -> tuple[Trial, IO[str]] | None:
        """Take the next trial to train: one that a lost worker left, one to promote, or a new one.

        Returns:
            The trial, and the open file that claims it until it is closed; None if there is nothing to do
            now, or `is_over`.
        """
        trials = self.journal.trials()
        unfinished = [trial for trial in trials if self.rungs.is_unfinished(trial)]
        for trial in unfinished:
            claim = self._claim(trial)
            if claim is None:
                continue
            if trial.starts < _MOST_STARTS:
                return self._begun(trial, claim)
            claim.close()
            self.journal.fail(trial, f"{trial.starts} workers ended while they trained it.")
            return self.next_trial(num_trials, dataset)
        is_full = len(trials) >= num_trials
        promoted = self.rungs.promoted(trials, is_settled=is_full and not unfinished)
        if promoted is None and not is_full:
            choices = self._new_choices(trials, dataset)
            if choices is not None:
                return self._claimed(self.journal.add(choices))
            promoted = self.rungs.promoted(trials, is_settled=not unfinished)
        if promoted is None:
            return None
        self.journal.note(promoted, target=promoted.target + 1)
        return self._claimed(self.journal.trials()[promoted.number])

    def reach(self, trial: Trial, epochs: int, value: float, fingerprint: str | None) -> None:
        """Write the metric of a trial after so many epochs, and its fingerprint if it has ended."""
        before = sum(max(each.reached, default=0) for each in self.journal.trials())
        spent = before - max(trial.reached, default=0) + epochs
        self.journal.note(trial, fingerprint=fingerprint, spent={**trial.spent, str(epochs): spent}, starts=0)
        self.journal.reach(trial, epochs, value)

    def is_over(self) -> bool:
        """Return whether no trial trains any more, where `next_trial` has none."""
        return not any(map(self.rungs.is_unfinished, self.journal.trials()))

    def _new_choices(self, trials: list[Trial], dataset: Dataset) -> dict[str, Any] | None:
        """Return choices for a new trial whose documents keep all rules; None if none are left."""
        for choices in suggestions(self.space, self.rungs, trials, self.facts.seed):
            try:
                layout_of(self.space, dataset, from_values(choices))
            except (DocumentError, FitError):
                continue
            return choices
        return None

    def _claim(self, trial: Trial) -> IO[str] | None:
        """Return the file that claims a trial for this worker, or None if another worker has it.

        The claim ends with the process at the latest.
        """
        claim = (self.path / "claims" / f"{trial.number:05d}").open("w")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            return None
        return claim

    def _claimed(self, trial: Trial) -> tuple[Trial, IO[str]]:
        claim = self._claim(trial)
        assert claim is not None, "nobody claims a trial that waits"
        return self._begun(trial, claim)

    def _begun(self, trial: Trial, claim: IO[str]) -> tuple[Trial, IO[str]]:
        self.journal.note(trial, starts=trial.starts + 1)
        return trial, claim


def _put(folder: Path, path: Path) -> None:
    """Rename a new study, which replaces an empty directory, but nothing else; raises CheckpointError."""
    try:
        folder.rename(path)
    except OSError:
        if not path.exists():
            raise
        raise _taken(path) from None
    force_to_disk(path.parent)


def _taken(path: Path) -> CheckpointError:
    remedy = "Resume it with `resume=True`, or choose" if is_study(path) else "Choose"
    return CheckpointError(f"{path} exists already. {remedy} another `out`.")
