"""A study's directory: what it searches, Optuna's database of its trials, and their runs.

All that workers share is here, so they may be on several machines with a common file system.
"""

import fcntl
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError, DocumentError, FitError, OptionError, damage_of
from widenet.randomness import stream
from widenet.stores.durable import appearing, appearing_together, force_all_to_disk, force_to_disk
from widenet.training.run_path import STUDY, TRIALS, hidden, is_locked, is_study, writing
from widenet.tuning.results import StudyResult, TrialResult
from widenet.tuning.space import Between, Open, SpaceSpec, from_labels, layout_of

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy
    from optuna.trial import FrozenTrial, Trial

DATABASE, REPORT = "optuna.db", "report.html"
_NAME = "widenet"

BEAT_SECONDS, LOST_SECONDS = 10, 60
"""Seconds between two heartbeats of a trial, and without one until its worker counts as lost."""
_MOST_LOST = 3
"""Number of workers that a trial may cost before it has failed."""

_SUGGESTIONS, _TRIES = 10, 1000
"""Number of suggestions after which choices are drawn at random, and of all that are tried for a new pair."""


@dataclass(frozen=True)
class Facts:
    """What all trials of a study have in common; no worker goes on with another study.

    Attributes:
        space: The space, with the metric in its training document.
        examples: Digest of the dataset's examples.
        rungs: Epochs after which trials are compared; the last are those of a whole training.
        reduction: Of this many trials at a rung, one goes on.
        seed: Seed of the suggestions.
        device: Kind of device.
    """

    space: dict[str, Any]
    examples: str
    rungs: list[int]
    reduction: int
    seed: int
    device: str


class Study:
    """An open study.

    Attributes:
        path: Its directory.
        facts: See `Facts`.
        space: Its space.
        metric: The metric by which trials are compared.
        trials: Optuna's study: each of its trials has the number of its run as attribute "run".
    """

    def __init__(self, path: Path, facts: Facts) -> None:
        self.path, self.facts = path, facts
        self.space = SpaceSpec.of(facts.space, str(path / STUDY))
        evaluation = self.space.fixed_training.evaluation
        assert evaluation is not None, "a study begins with an evaluation"
        self.metric = evaluation.metric
        self.trials = _optuna_study(path, facts)

    @classmethod
    def begin(cls, path: Path, facts: Facts) -> "Study":
        """Make the directory of a new study; raises CheckpointError."""
        is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
        CheckpointError.require(is_free, "exists already", place=path, option="out")
        with hidden(path) as folder, writing(path):
            (folder / TRIALS).mkdir()
            (folder / STUDY).write_text(f"{json.dumps(asdict(facts), indent=2)}\n", encoding="utf-8")
            _optuna_study(folder, facts, is_new=True)._storage.remove_session()
            force_all_to_disk(folder)
            folder.rename(path)
            force_to_disk(path.parent)
        return cls(path, facts)

    @classmethod
    def open(cls, path: Path) -> "Study":
        """Open a study; raises CheckpointError."""
        CheckpointError.require(is_study(path), "is no study to resume", place=path, option="resume")
        try:
            facts = Facts(**json.loads((path / STUDY).read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"is damaged: {damage_of(error)}", place=path / STUDY) from None
        return cls(path, facts)

    def check_same(self, facts: Facts) -> None:
        """Raise OptionError unless the study was begun with these facts."""
        for name, before in vars(self.facts).items():
            option = "data" if name == "examples" else name
            is_same = before == getattr(facts, name)
            OptionError.require(is_same, f"must be as {self.path} was begun", option=option)

    def run(self, number: int) -> Path:
        """Return the run directory of a trial."""
        return self.path / TRIALS / f"{number:05d}"

    def lock(self) -> IO[str]:
        """Return the open lock of the study, which one worker at a time has until it closes it or ends."""
        lock = (self.path / ".lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def next_trial(self, num_trials: int, dataset: Dataset) -> bool | None:
        """Queue a trial for this worker, which has the lock.

        Returns:
            Whether a trial is queued: one that a lost worker had, or a new one. None if there will be none.
            False, too, while a worker that was not lost but slow still trains the run of a queued one.
        """
        from optuna.storages import fail_stale_trials
        from optuna.trial import TrialState

        fail_stale_trials(self.trials)
        latest = self._latest()
        states = [trial.state for trial in latest]
        queued = [trial for trial in latest if trial.state == TrialState.WAITING]
        if queued:
            return not any(is_locked(self.run(trial.user_attrs["run"])) for trial in queued)
        choices = self._new_choices(latest, dataset) if len(latest) < num_trials else None
        if choices is not None:
            self.trials.enqueue_trial(choices, user_attrs={"run": len(latest)})
            return True
        return False if TrialState.RUNNING in states else None

    def results(self) -> StudyResult:
        """Return the results of all trials."""
        listed = [self.result(trial) for trial in self._latest()]
        finished = [trial for trial in listed if trial.state == "finished"]
        best = max(finished, key=lambda trial: (trial.value, -trial.number), default=None)
        epochs, rungs = sum(trial.epochs for trial in listed), self.facts.rungs
        share = epochs / max(1, len(listed) * rungs[-1])
        return StudyResult(self.path, self.metric, rungs, best, listed, epochs, share)

    def result(self, trial: "FrozenTrial") -> TrialResult:
        """Return the result of one of Optuna's trials."""
        states: Any = {"COMPLETE": "finished", "PRUNED": "stopped", "FAIL": "failed"}
        state, attributes = states.get(trial.state.name, "training"), trial.user_attrs
        value = None if trial.last_step is None else trial.intermediate_values[trial.last_step]
        lost = f"{_MOST_LOST} workers were lost while they trained it." if state == "failed" else None
        return TrialResult(
            attributes["run"],
            state,
            trial.last_step or 0,
            value if trial.values is None else trial.values[0],
            self.space.plain(trial.params),
            self.run(attributes["run"]),
            attributes.get("fingerprint"),
            attributes.get("problem", lost),
        )

    def write_best(self) -> None:
        """Write the documents of the best trial, in `best`; one worker at a time does so."""
        best = self.results().best
        if best is None:
            return
        network, training = self.space.documents(from_labels(self._latest()[best.number].params))
        folder = self.path / "best"
        folder.mkdir(exist_ok=True)
        with appearing_together([folder / "network.json", folder / "training.json"]) as files:
            for file, document in zip(files, (network, training), strict=True):
                file.write_text(document.to_json(), encoding="utf-8")

    def write_report(self) -> None:
        """Write Optuna's plots of the trials into a page."""
        from optuna import visualization
        from optuna.importance import PedAnovaImportanceEvaluator
        from plotly.io import to_html

        with quiet(), catch_warnings():
            simplefilter("ignore")  # Optuna warns of plots that have nothing to show yet
            figures = [
                visualization.plot_optimization_history(self.trials, target_name=self.metric),
                visualization.plot_intermediate_values(self.trials),
                visualization.plot_slice(self.trials, target_name=self.metric),
            ]
            if len({trial.value for trial in self.results().trials if trial.state == "finished"}) > 1:
                importance = PedAnovaImportanceEvaluator()
                figures.append(visualization.plot_param_importances(self.trials, evaluator=importance))
        page = "<!doctype html>"
        for number, figure in enumerate(figures):
            page += to_html(figure, include_plotlyjs=number == 0, full_html=False)
        with appearing(self.path / REPORT) as file:
            file.write(page.encode())

    def known(self, trial: "Trial") -> "FrozenTrial":
        """Return what the database has of a trial."""
        return self.trials.get_trials(deepcopy=False)[trial.number]

    def is_given_away(self, trial: "Trial") -> bool:
        """Return whether a trial has ended although its worker has not, which counts as lost."""
        return self.known(trial).state.is_finished()

    def queue_again(self, trial: "Trial") -> None:
        """Queue a trial that was interrupted; whoever takes it resumes its run."""
        _queue_again(self.trials, self.known(trial), lost=0)

    def _latest(self) -> "list[FrozenTrial]":
        """Return Optuna's newest trial of each run, which is queued again after its worker was lost."""
        latest = {trial.user_attrs["run"]: trial for trial in self.trials.get_trials(deepcopy=False)}
        return [latest[number] for number in sorted(latest)]

    def _new_choices(self, trials: "Sequence[FrozenTrial]", dataset: Dataset) -> dict[str, Any] | None:
        """Return choices that no trial has and whose documents keep all rules; None if none are found.

        They depend on the trials and the seed alone: the best that Optuna suggests, then random ones.
        """
        from optuna import create_study
        from optuna.samplers import RandomSampler, TPESampler

        number = int(stream(self.facts.seed, "tuning/suggest", len(trials)).integers(2**31))
        with quiet():
            study = create_study(direction="maximize", sampler=TPESampler(seed=number))
            study.add_trials([trial for trial in trials if trial.params])
            tried = [self.space.plain(trial.params) for trial in trials]
            for attempt in range(_TRIES):
                if attempt == _SUGGESTIONS:
                    study.sampler = RandomSampler(seed=number)
                trial = study.ask()
                with suppress(DocumentError, FitError):
                    layout_of(self.space, dataset, partial(suggested, trial))
                    if self.space.plain(trial.params) not in tried:
                        return trial.params
        return None


def suggested(trial: "Trial", place: str, opened: Open) -> Any:
    """Return what Optuna suggests for an open value."""
    if not isinstance(opened, Between):
        return trial.suggest_categorical(place, opened.labels)
    low, high = opened.between
    if opened.is_whole:
        return trial.suggest_int(place, int(low), int(high), log=opened.log)
    return trial.suggest_float(place, low, high, log=opened.log)


def _optuna_study(folder: Path, facts: Facts, is_new: bool = False) -> "OptunaStudy":
    """Open Optuna's study in the database of a folder, or make a new one; raises CheckpointError."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    path, first = folder / DATABASE, facts.rungs[0]
    CheckpointError.require(is_new or path.is_file(), "is missing", place=path)
    halving = optuna.pruners.SuccessiveHalvingPruner(first, facts.reduction)
    pruner = halving if len(facts.rungs) > 1 else optuna.pruners.NopPruner()
    try:
        with quiet():
            storage = optuna.storages.RDBStorage(
                f"sqlite:///{DATABASE}",
                engine_kwargs={"creator": partial(sqlite3.connect, path, 60.0, check_same_thread=False)},
                heartbeat_interval=BEAT_SECONDS,
                grace_period=LOST_SECONDS,
                heartbeat_stale_trial_callback=_queue_again,
            )
            # Its sampler has nothing to choose: each trial is queued with all its choices.
            words: dict[str, Any] = {
                "storage": storage,
                "sampler": optuna.samplers.RandomSampler(),
                "pruner": pruner,
            }
            if is_new:
                return optuna.create_study(study_name=_NAME, direction="maximize", **words)
            return optuna.load_study(study_name=_NAME, **words)
    except (
        SQLAlchemyError,
        sqlite3.Error,
        optuna.exceptions.StorageInternalError,
        RuntimeError,
        KeyError,
    ) as error:
        raise CheckpointError(f"is damaged: {damage_of(error)}", place=path) from None


def _queue_again(study: "OptunaStudy", trial: "FrozenTrial", lost: int = 1) -> None:
    """Queue a trial that has cost so many more workers, unless these are too many."""
    from optuna.trial import TrialState, create_trial

    lost += trial.user_attrs.get("lost", 0)
    if lost < _MOST_LOST:
        queued = create_trial(
            state=TrialState.WAITING,
            params=trial.params,
            distributions=trial.distributions,
            user_attrs={**trial.user_attrs, "lost": lost},
            system_attrs=trial.system_attrs,
            intermediate_values=trial.intermediate_values,
        )
        study.add_trial(queued)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from logging what it makes, and from warning of what it calls experimental."""
    from optuna import exceptions, logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with catch_warnings():
            simplefilter("ignore", exceptions.ExperimentalWarning)
            yield
    finally:
        logging.set_verbosity(before)
