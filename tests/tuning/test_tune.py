"""Searching: finished trials have the bits of trainings of their documents, and studies resume; mistakes."""

import os
import shutil
import signal
import sys
import warnings
from dataclasses import replace

import pytest
from optuna.trial import TrialState

import widenet
from tests.mistakes import mistake
from tests.tuning.studies import SPACE, Heard, documents, people, with_layer, with_training
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, DocumentError, FitError, OptionError
from widenet.runs import train
from widenet.training.checkpoint import Checkpoint
from widenet.training.run_directory import RunDirectory
from widenet.tuning import worker
from widenet.tuning.study import Study, queue_again
from widenet.tuning.tune import tune


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
    queue_again(study.trials, study.trials.trials[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = tune(SPACE, data, tmp_path / "study", trials=1, resume=True)
    assert outcome(result) == outcome(searched[0])[:1]


def test_a_worker_whose_trial_was_given_away_goes_on(searched, data, tmp_path):
    def give_away(_):
        if len(heard.begun) == 1:
            study = Study.open(tmp_path / "study")
            [trial] = study.trials.trials
            study.trials._storage.set_trial_state_values(trial._trial_id, TrialState.FAIL)
            queue_again(study.trials, study.trials.trials[0])

    heard = Heard(give_away)
    result = tune(SPACE, data, tmp_path / "study", trials=2, report=heard)
    assert heard.begun == [0, 0, 1]
    assert len([text for text in heard.said if "slow" in text]) == 1
    assert outcome(result) == outcome(searched[0])[:2]


def test_the_best_documents_are_written_again_where_a_kill_left_none(searched, data, tmp_path):
    shutil.copytree(searched[0].path, tmp_path / "study")
    shutil.rmtree(tmp_path / "study" / "best")
    tune(SPACE, data, tmp_path / "study", trials=6, resume=True)
    assert documents(tmp_path / "study") == documents(searched[0].path)


def test_a_study_takes_more_trials_later(searched, data, tmp_path):
    tune(SPACE, data, tmp_path / "study", trials=2)
    result = tune(SPACE, data, tmp_path / "study", trials=6, resume=True)
    assert outcome(result) == outcome(searched[0])


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
    ("change", "kind", "option"),
    [
        ({"data": 1}, FitError, None),
        ({"space": with_layer(dropout=0.3)}, DocumentError, None),
        ({"metric": "recall@5"}, DocumentError, None),
        ({"seed": 1}, OptionError, "seed"),
        ({"rungs": 1}, OptionError, "rungs"),
        ({"reduction": 9}, OptionError, "rungs"),
        ({"reduction": 9, "rungs": 1}, OptionError, "rungs"),
    ],
)
def test_another_study_is_not_resumed(change, kind, option, searched, data, tmp_path):
    words = {"space": SPACE, "data": data, "out": searched[0].path, "trials": 6, "resume": True} | change
    if "data" in change:
        words["data"] = people(tmp_path / "other", seed=1)
    before = {path: path.stat().st_mtime_ns for path in searched[0].path.rglob("*")}
    with mistake(kind, option=option):
        tune(**words)
    assert {path: path.stat().st_mtime_ns for path in searched[0].path.rglob("*")} == before


def test_nothing_is_made_for_a_wrong_space_or_without_optuna(data, tmp_path, monkeypatch):
    with mistake(DocumentError):
        tune(with_layer(units={"from": [0, -1]}), data, tmp_path / "study")
    with mistake(CheckpointError):
        tune(SPACE, data, tmp_path / "study", resume=True)
    for name in ("optuna", "plotly"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, name, None)
            with mistake(OptionError, place=name):
                tune(SPACE, data, tmp_path / "study")
    assert not os.path.lexists(tmp_path / "study")


@pytest.mark.slow
def test_a_study_sets_a_validation_part_aside_once_and_resumes_on_it(tmp_path):
    plain = people(tmp_path / "plain", validation=False)
    heard, out = Heard(), tmp_path / "study"
    result = tune(SPACE, plain, out, trials=1, rungs=2, report=heard)
    assert any(str(out / "data") in text for text in heard.said)
    split = widenet.split(plain, tmp_path / "split", validation=0.25)
    assert (out / "data" / "examples-00000.arrow").read_bytes() == (
        split.path / "examples-00000.arrow"
    ).read_bytes()
    assert outcome(result) == outcome(tune(SPACE, split, tmp_path / "apart", trials=1, rungs=2))
    shutil.rmtree(out / "data")
    more = tune(SPACE, plain, out, trials=2, rungs=2, resume=True, workers=2)
    assert outcome(more)[0] == outcome(result)[0]
    own = tune(SPACE, out / "data", out, trials=2, rungs=2, resume=True)
    assert outcome(own) == outcome(more)
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "study", "split", "apart"}
    with mistake(CheckpointError):
        tune(SPACE, plain, out, trials=1)
    with mistake(FitError):
        tune(SPACE, dataset_from_lists(tmp_path / "ones", [[1], [2]], width=32), tmp_path / "none")
    assert not (tmp_path / "none").exists()
