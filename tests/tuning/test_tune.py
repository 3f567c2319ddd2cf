"""Searching: finished trials have the bits of trainings of their documents, and studies resume; mistakes."""

import json
import os
import signal
import subprocess
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace

import pytest
from optuna.trial import TrialState

from tests.mistakes import mistake
from tests.tuning.studies import SPACE, Heard, documents, people, with_layer, with_training
from widenet.errors import CheckpointError, DocumentError, FitError, OptionError
from widenet.runs import train
from widenet.training.checkpoint import Checkpoint
from widenet.training.run_directory import RunDirectory
from widenet.tuning import study as studies
from widenet.tuning import worker
from widenet.tuning.study import Study
from widenet.tuning.tune import tune

DYING = """
import os, sys
from widenet.cli import main
from widenet.tuning import study, worker

study.BEAT_SECONDS, study.LOST_SECONDS = 1, 3
train = worker.run_training

def dying(layout, dataset, arguments):
    after = arguments.after_epoch
    def after_epoch(network, epoch):
        if epoch == 2:
            os.kill(os.getpid(), 9)
        return after(network, epoch)
    object.__setattr__(arguments, "after_epoch", after_epoch)
    return train(layout, dataset, arguments)

worker.run_training = dying
main(["tune", *sys.argv[1:]])
"""
"""A worker that joins a study and is killed in the second epoch of its first trial."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return people(tmp_path_factory.mktemp("tune") / "data")


@pytest.fixture(scope="module")
def searched(data, tmp_path_factory):
    """A study of six trials in one process, its result, and what its report heard."""
    heard, out = Heard(), tmp_path_factory.mktemp("searched") / "study"
    return tune(SPACE, data, out, trials=6, report=heard), heard


def outcome(result):
    """All that must not depend on interruptions."""
    return [(trial.epochs, trial.value, trial.choices, trial.fingerprint) for trial in result.trials]


def test_trials_stop_at_rungs_and_a_finished_one_has_the_bits_of_a_training(searched, data, tmp_path):
    result, heard = searched
    assert result.rungs == [1, 3, 9]
    assert heard.begun == [0, 1, 2, 3, 4, 5]
    assert heard.ended == list(result.trials)
    finished = [trial for trial in result.trials if trial.state == "finished"]
    stopped = [trial for trial in result.trials if trial.state == "stopped"]
    assert len(finished) + len(stopped) == 6
    assert stopped
    assert {trial.epochs for trial in stopped} <= {1, 3}
    assert result.best == max(finished, key=lambda trial: trial.value)
    assert result.total_epochs == sum(trial.epochs for trial in result.trials)
    model = train(*documents(result.path), data, tmp_path / "run")
    assert model.facts["fingerprint"] == result.best.fingerprint
    assert Checkpoint.open(result.best.run / "model").facts["fingerprint"] == result.best.fingerprint
    assert result.best.value == model.facts["best"]
    for trial in stopped:
        records = RunDirectory.open(trial.run).records()
        assert trial.value == max(record["ndcg@5"] for record in records)
        assert len(records) == trial.epochs


def test_an_interrupted_study_resumes_to_the_same_trials(searched, data, tmp_path):
    def interrupt(trial):
        if trial == 1:
            signal.raise_signal(signal.SIGINT)

    heard = Heard()
    with pytest.raises(KeyboardInterrupt):
        tune(SPACE, data, tmp_path / "study", trials=2, report=Heard(interrupt))
    assert (tmp_path / "study" / "report.html").is_file()
    result = tune(SPACE, data, tmp_path / "study", trials=2, resume=True, report=heard)
    assert heard.begun == [1]
    assert outcome(result) == outcome(searched[0])[:2]


def test_a_trial_that_trains_a_rung_again_warns_of_nothing(searched, data, tmp_path, monkeypatch):
    """Its worker is lost between the report of an epoch and its checkpoint."""

    def lost(layout, dataset, arguments):
        def after_epoch(network, epoch):
            arguments.after_epoch(network, epoch)
            raise RuntimeError("lost")

        return training(layout, dataset, replace(arguments, after_epoch=after_epoch))

    training = worker.run_training
    monkeypatch.setattr(worker, "run_training", lost)
    with pytest.raises(RuntimeError, match="lost"):
        tune(SPACE, data, tmp_path / "study", trials=1)
    monkeypatch.setattr(worker, "run_training", training)
    study = Study.open(tmp_path / "study")
    study.queue_again(study.trials.trials[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = tune(SPACE, data, tmp_path / "study", trials=1, resume=True)
    assert outcome(result) == outcome(searched[0])[:1]


def test_a_killed_worker_loses_no_trial_and_none_is_counted_twice(data, tmp_path, monkeypatch):
    """Another process joins the study while the first one begins its first trial."""
    space, out = tmp_path / "space.json", tmp_path / "study"
    space.write_text(json.dumps(with_training(epochs=3)))
    words = [space, "--data", data.path, "--out", out, "--rungs", 1, "--resume"]
    statuses = []

    def join(trial):
        if trial == 0:
            command = [sys.executable, "-c", DYING, *map(str, words)]
            statuses.append(subprocess.run(command, check=False).returncode)

    monkeypatch.setattr(studies, "BEAT_SECONDS", 1)
    monkeypatch.setattr(studies, "LOST_SECONDS", 3)
    heard = Heard(join)
    result = tune(space, data, out, trials=3, rungs=1, report=heard)
    assert statuses == [-signal.SIGKILL]
    assert sorted(heard.begun) == [0, 1, 2]
    assert [(trial.number, trial.state) for trial in result.trials] == [
        (each, "finished") for each in range(3)
    ]
    lost = result.trials[1]
    again = train(lost.run / "network.json", lost.run / "training.json", data, tmp_path / "again")
    assert lost.fingerprint == again.facts["fingerprint"]
    epochs = [record["epoch"] for record in RunDirectory.open(lost.run).records()]
    assert epochs == [1, 2, 3]


@pytest.mark.parametrize("interrupts", [False, True])
def test_a_worker_whose_trial_was_given_away_goes_on(interrupts, searched, data, tmp_path):
    def give_away(_):
        if len(heard.begun) == 1:
            study = Study.open(tmp_path / "study")
            [trial] = study.trials.trials
            study.trials._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            study.queue_again(trial)
            if interrupts:
                signal.raise_signal(signal.SIGINT)

    heard = Heard(give_away)
    with pytest.raises(KeyboardInterrupt) if interrupts else nullcontext():
        tune(SPACE, data, tmp_path / "study", trials=2, report=heard)
    result = tune(SPACE, data, tmp_path / "study", trials=2, resume=True, report=heard)
    assert heard.begun == [0, 0, 1]
    assert len(heard.said) == 1
    assert outcome(result) == outcome(searched[0])[:2]


def test_a_trial_whose_numbers_overflow_fails_alone(data, tmp_path):
    space = with_training(
        optimizer={"kind": "sgd", "learning_rate": {"from": [1e30, 0.5]}},
        epochs=2,
        evaluation={"metric": "ndcg@5"},
    )
    heard = Heard()
    result = tune(space | {"network": with_layer(units=4, activation="linear")["network"]}, data,
                  tmp_path / "study", trials=2, rungs=1, report=heard)  # fmt: skip
    assert sorted(trial.state for trial in result.trials) == ["failed", "finished"]
    assert result.best.choices == {"training.optimizer.learning_rate": 0.5}
    assert [trial.problem is None for trial in heard.ended if trial.state == "failed"] == [False]


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"data": 1}, "data"),
        ({"space": with_layer(dropout=0.3)}, "space"),
        ({"seed": 1}, "seed"),
        ({"rungs": 1}, "rungs"),
        ({"reduction": 9, "rungs": 1}, "rungs"),
    ],
)
def test_another_study_is_not_resumed(change, option, searched, data, tmp_path):
    words = {"space": SPACE, "data": data, "out": searched[0].path, "trials": 6, "resume": True} | change
    if "data" in change:
        words["data"] = people(tmp_path / "other", seed=1)
    before = {path: path.stat().st_mtime_ns for path in searched[0].path.rglob("*")}
    with mistake(OptionError, option=option):
        tune(**words)
    assert {path: path.stat().st_mtime_ns for path in searched[0].path.rglob("*")} == before


def test_nothing_is_made_for_a_mistake_or_without_optuna(data, tmp_path, monkeypatch):
    for space in (
        with_layer(units={"from": [0, -1]}),
        with_training(evaluation=None),
        with_training(evaluation={"part": "heldout"}),
    ):
        with mistake(DocumentError):
            tune(space, data, tmp_path / "study")
    with mistake(FitError):
        tune(SPACE, people(tmp_path / "plain", validation=False), tmp_path / "study")
    with mistake(CheckpointError):
        tune(SPACE, data, tmp_path / "study", resume=True)
    for name in ("optuna", "plotly"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, name, None)
            with mistake(OptionError, place=name):
                tune(SPACE, data, tmp_path / "study")
    assert not os.path.lexists(tmp_path / "study")
