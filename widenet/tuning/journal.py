"""A study's trials in Optuna's journal file, which one process at a time reads and writes.

Optuna's own locks are files, which a killed process leaves behind, and a line that was cut short makes its
journal unreadable. Here the operating system ends the lock of a killed process, and the next one removes a
line that was cut short.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from widenet.errors import CheckpointError, damage_of
from widenet.late_imports import optional
from widenet.training.run_path import writing
from widenet.tuning.rungs import Rungs, Trial
from widenet.tuning.space import SpaceSpec
from widenet.tuning.suggest import distributions, quiet

FILE_NAME = "optuna.journal"

_NAME = "widenet"


class _Unlocked:
    """A lock for Optuna that does nothing: the study is locked already."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return


class Journal:
    """The trials of a study.

    A trial that waits at a rung, or trains, is RUNNING in Optuna's words, because it may go on.
    """

    def __init__(self, folder: Path, space: SpaceSpec, rungs: Rungs) -> None:
        """Name the journal of a study's directory, which `alone` opens."""
        self.folder, self.space, self.rungs = folder, space, rungs
        self._storage: Any = None
        self._study = 0

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the study against other workers within the block; all other methods need this.

        Raises:
            CheckpointError: The journal is missing, damaged or cannot be written.
        """
        path = self.folder / FILE_NAME
        with writing(path), (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                raise CheckpointError(f"{path} is missing. Restore it, or choose another `out`.")
            _remove_torn_line(path)
            if self._storage is None:
                self._open(path)
            yield

    def _open(self, path: Path) -> None:
        try:
            for line in path.read_bytes().splitlines():
                json.loads(line)  # Optuna finds a wrong last line only when it reads the next one
            storage = _opened(path)
            self._study = storage.get_study_id_from_name(_NAME)
            self._storage = storage
        except (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError) as error:
            raise CheckpointError(f"{path} is damaged: {damage_of(error)}. Restore it.") from None

    def trials(self) -> list[Trial]:
        """Return all trials in order of their numbers."""
        frozen = self._storage.get_all_trials(self._study, deepcopy=False)
        return [
            Trial(
                trial.number,
                dict(trial.params),
                trial.user_attrs["target"],
                dict(trial.intermediate_values),
                trial.user_attrs.get("problem"),
                trial.user_attrs.get("fingerprint"),
                trial.user_attrs.get("starts", 0),
                trial.user_attrs.get("spent", {}),
            )
            for trial in frozen
        ]

    def add(self, choices: Mapping[str, Any]) -> Trial:
        """Append a new trial, in one line of the journal."""
        from optuna.trial import TrialState, create_trial

        number = len(self.trials())
        frozen = create_trial(
            state=TrialState.RUNNING,
            params=dict(choices),
            distributions=distributions(self.space, choices),
            user_attrs={"target": 0},
        )
        self._storage.create_new_trial(self._study, template_trial=frozen)
        return self.trials()[number]

    def note(self, trial: Trial, **facts: Any) -> None:
        """Write facts of a trial."""
        for name, value in facts.items():
            self._storage.set_trial_user_attr(self._id(trial), name, value)

    def reach(self, trial: Trial, epochs: int, value: float) -> None:
        """Write the metric of a trial that has stopped after so many epochs."""
        from optuna.trial import TrialState

        self._storage.set_trial_intermediate_value(self._id(trial), epochs, value)
        if epochs >= self.rungs.epochs[-1]:
            self._storage.set_trial_state_values(self._id(trial), TrialState.COMPLETE, [value])

    def fail(self, trial: Trial, problem: str) -> None:
        """Write that a trial has failed, and why."""
        from optuna.trial import TrialState

        self.note(trial, problem=problem)
        self._storage.set_trial_state_values(self._id(trial), TrialState.FAIL, None)

    def _id(self, trial: Trial) -> int:
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._study, trial.number))


def create(folder: Path) -> None:
    """Make the journal of a new study, without trials."""
    with optional("optuna", "tune"):
        from optuna.study import StudyDirection
    with quiet():
        _opened(folder / FILE_NAME).create_new_study([StudyDirection.MAXIMIZE], _NAME)


def _opened(path: Path) -> Any:
    with optional("optuna", "tune"):
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    lock: Any = _Unlocked()
    return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))


def _remove_torn_line(path: Path) -> None:
    """Remove the last line of a journal if its writer was killed before its end."""
    with path.open("r+b") as file:
        text = file.read()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            file.truncate(whole)
