"""Studies: what is tried next, what a lost worker leaves, and what the directory holds."""

import json
import math
import sqlite3
from contextlib import closing

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import TrialState, create_trial

from tests.mistakes import mistake
from tests.tuning.studies import RATE, SPACE, UNITS, people, with_training
from widenet.errors import CheckpointError
from widenet.training.run_path import locked
from widenet.tuning import study as studies
from widenet.tuning.study import DATABASE, Facts, Study

pytestmark = pytest.mark.filterwarnings(
    "ignore:Heartbeat of storage", "ignore::optuna.exceptions.ExperimentalWarning"
)
"""Optuna warns whoever takes a trial without training it."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return people(tmp_path_factory.mktemp("study") / "data")


@pytest.fixture
def begin(tmp_path, data):
    def begun(space=SPACE, seed=0):
        return Study.begin(tmp_path / f"study-{seed}", Facts(space, data.digest, [1, 3, 9], 3, seed, "cpu"))

    return begun


def value(choices):
    """Best at a learning rate of 0.02; the units hardly matter."""
    return -abs(math.log(float(choices[RATE]) / 0.02)) + 0.01 * int(choices[UNITS])


def searched(study, number, data):
    """The choices of so many trials, each of which has ended."""
    while study.next_trial(number, data):
        trial = study.trials.ask()
        study.space.documents(lambda place, opened, trial=trial: studies.suggested(trial, place, opened))
        study.trials.tell(trial, value(trial.params))
    return [trial.choices for trial in study.results().trials]


def test_suggestions_depend_on_the_trials_and_the_seed_alone_and_find_what_is_good(begin, data, tmp_path):
    first = searched(begin(), 20, data)
    assert {choices[UNITS] for choices in first} == {2, 4, 6}
    assert all(0.001 <= choices[RATE] <= 0.3 for choices in first)
    assert max(map(value, first[10:])) > max(map(value, first[:10]))
    (tmp_path / "study-0").rename(tmp_path / "again")
    assert searched(begin(), 12, data) == first[:12]
    assert searched(begin(seed=1), 2, data)[0] != first[0]


def test_no_choices_are_tried_twice_and_a_space_is_searched_to_its_end(begin, data):
    rates = {"kind": "adam", "learning_rate": {"from": [0.1, 0.2]}}
    whole = searched(begin(with_training(optimizer=rates)), 30, data)
    assert len({tuple(choices.values()) for choices in whole}) == len(whole) == 6


def test_a_trial_whose_worker_is_lost_comes_next_with_its_choices_and_its_run(begin, data, monkeypatch):
    """Its worker sends no heartbeat: the database is asked with a time of grace that is over."""
    study = begin()
    assert study.next_trial(4, data) is True
    first = study.trials.ask()
    study.space.documents(lambda place, opened: studies.suggested(first, place, opened))
    first.report(0.25, 1)
    study.trials._storage.record_heartbeat(first._trial_id)
    assert study.next_trial(1, data) is False
    choices = dict(first.params)
    monkeypatch.setattr(study.trials._storage._backend, "grace_period", -1)
    for _ in range(2):
        assert study.next_trial(4, data) is True
        [result] = study.results().trials
        assert (result.number, result.state, result.epochs) == (0, "training", 1)
        again = study.trials.ask()
        assert (again.params, again.user_attrs["run"]) == (choices, 0)
        study.trials._storage.record_heartbeat(again._trial_id)
    assert study.next_trial(1, data) is None
    [result] = study.results().trials
    assert (result.state, result.value) == ("failed", 0.25)
    assert result.problem


def test_a_run_that_a_slow_worker_trains_is_given_to_no_other_one(begin, data):
    study = begin()

    def stop_beating():
        with closing(sqlite3.connect(study.path / DATABASE)) as database, database:
            database.execute("UPDATE trial_heartbeats SET heartbeat = datetime('now', '-1 hour')")

    assert study.next_trial(1, data) is True
    slow = study.trials.ask()
    study.trials._storage.record_heartbeat(slow._trial_id)
    run = study.run(0)
    run.mkdir()
    with locked(run):
        stop_beating()
        assert study.next_trial(1, data) is False
    stop_beating()
    assert study.next_trial(1, data) is True
    with locked(run):
        assert study.next_trial(1, data) is False


def test_a_trial_that_was_interrupted_costs_no_worker(begin, data, monkeypatch):
    """It fails with its third lost worker, however often it is interrupted before and between."""
    study = begin()
    monkeypatch.setattr(study.trials._storage._backend, "grace_period", -1)
    for is_lost in (False, False, True, False, True, False, False, True):
        assert [trial.state for trial in study.results().trials] in ([], ["training"])
        assert study.next_trial(1, data) is True
        trial = study.trials.ask()
        if is_lost:
            study.trials._storage.record_heartbeat(trial._trial_id)
        else:
            study.queue_again(trial)
            study.trials.tell(trial, state=TrialState.FAIL)
    assert study.next_trial(1, data) is None
    assert [trial.state for trial in study.results().trials] == ["failed"]


def test_the_best_documents_have_every_default(begin):
    study = begin()
    for run, (units, rate, found) in enumerate([("4", 0.01, 0.5), ("2", 0.1, 0.25)]):
        choices = {UNITS: units, RATE: rate}
        known = {
            UNITS: CategoricalDistribution(["2", "4", "6"]),
            RATE: FloatDistribution(0.001, 0.3, log=True),
        }
        trial = create_trial(params=choices, distributions=known, value=found, user_attrs={"run": run})
        study.trials.add_trial(trial)
    study.write_best()
    network, training = (
        json.loads((study.path / "best" / name).read_text()) for name in ("network.json", "training.json")
    )
    assert network["layers"][1]["units"] == 4
    assert (training["optimizer"]["learning_rate"], training["keep"]) == (0.01, "best")
    study.write_report()
    page = (study.path / "report.html").read_text()
    assert all(place in page for place in (UNITS, RATE, study.metric))


@pytest.mark.parametrize("damaged", [lambda _: b"nonsense" * 1000, lambda _: b"", lambda _: None])
def test_a_damaged_or_missing_database_is_refused(damaged, begin):
    database = begin().path / DATABASE
    content = damaged(database.read_bytes())
    database.unlink() if content is None else database.write_bytes(content)
    with mistake(CheckpointError, place=DATABASE):
        Study.open(database.parent)


def test_a_damaged_or_missing_study_is_refused(begin, tmp_path):
    with mistake(CheckpointError, option="resume"):
        Study.open(tmp_path / "new")
    study = begin()
    with mistake(CheckpointError, option="out"):
        begin()
    (study.path / "study.json").write_text(json.dumps({"space": 3}))
    with mistake(CheckpointError, place="study.json"):
        Study.open(study.path)
