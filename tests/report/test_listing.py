"""The list of runs: states as the directories tell them, orders, differences, and folders that are no run."""

import json
import shutil

import pytest

from tests.mistakes import mistake
from widenet.errors import ArgumentError, OptionError
from widenet.report.listing import list_runs
from widenet.runs import Model
from widenet.training.run_path import locked


@pytest.fixture
def runs(reported, tmp_path):
    """A folder with copies of the two runs, one of them deeper."""
    shutil.copytree(reported / "run", tmp_path / "runs" / "run")
    shutil.copytree(reported / "other", tmp_path / "runs" / "more" / "other")
    return tmp_path / "runs"


def by_name(folder):
    return {run.name: run for run in list_runs(folder).runs}


def test_a_run_shows_the_numbers_of_its_log_and_the_fingerprint_of_its_weights(runs):
    run = by_name(runs)["run"]
    *_, last = [json.loads(line) for line in (runs / "run" / "log.jsonl").read_text().splitlines()]
    assert (run.state, run.epochs, run.epochs_asked, run.kept_epoch) == ("finished", 3, 3, 3)
    assert (run.metric, run.part, run.value) == ("ndcg@5", "validation", last["ndcg@5"])
    assert run.fingerprint == Model.load(runs / "run", "cpu").fingerprint()
    assert run.differences["training.epochs"] == 3
    assert by_name(runs)["more/other"].differences["training.epochs"] == 2
    assert set(run.differences) == {"network.name", "training.epochs", "training.optimizer.learning_rate"}


def test_the_state_is_what_the_directory_tells(runs):
    shutil.rmtree(runs / "run" / "model")
    run = by_name(runs)["run"]
    assert (run.state, run.fingerprint) == ("interrupted", None)
    with locked(runs / "run"):
        assert by_name(runs)["run"].state == "training"
    shutil.rmtree(runs / "run" / "checkpoints")
    assert by_name(runs)["run"].state == "unsaved"
    (runs / "run" / ".lock").unlink()
    (runs / "run" / "log.jsonl").unlink()
    run = by_name(runs)["run"]
    assert (run.state, run.epochs, run.value, run.kept_epoch) == ("unsaved", 0, None, None)


def test_the_order_is_that_which_is_asked_for(runs):
    names = {order: [run.name for run in list_runs(runs, order).runs] for order in ("name", "epochs")}
    assert names == {"name": ["more/other", "run"], "epochs": ["run", "more/other"]}
    values = [run.value for run in list_runs(runs).runs]
    assert values == sorted(values, reverse=True)
    (runs / "more" / "other" / "log.jsonl").unlink()
    assert [run.name for run in list_runs(runs).runs] == ["run", "more/other"]
    with mistake(ArgumentError):
        list_runs(runs, "loss")


def test_folders_that_are_no_run_are_named_and_the_others_listed(runs, reported):
    shutil.copytree(reported / "data", runs / "data")
    (runs / "foreign" / "deep").mkdir(parents=True)
    (runs / ".hidden").mkdir()
    for name in ("network", "weights"):
        shutil.copytree(runs / "run", runs / "more" / name)
    (runs / "more" / "network" / "network.json").write_text("{")
    (runs / "more" / "weights" / "model" / "manifest.json").write_text("{}")
    listing = list_runs(runs)
    assert sorted(run.name for run in listing.runs) == ["more/other", "run"]
    assert listing.problems.keys() == {runs / "foreign", runs / "more" / "network", runs / "more" / "weights"}


def test_a_folder_may_be_a_run_or_empty_and_must_exist(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(runs / "run")
    assert list(by_name(".")) == ["run"]
    (tmp_path / "empty").mkdir()
    assert (list_runs(tmp_path / "empty").runs, list_runs(tmp_path / "empty").problems) == ([], {})
    with mistake(OptionError, place="nowhere"):
        list_runs(tmp_path / "nowhere")


def test_a_loss_that_went_up_is_said(runs):
    record = {"epoch": 1, "start_loss": 1.0, "loss": 9.0, "ndcg@5": float("nan")}
    (runs / "run" / "log.jsonl").write_text(f"{json.dumps(record)}\n")
    run = by_name(runs)["run"]
    assert run.warning is not None
    assert run.value is None
