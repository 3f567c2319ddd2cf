"""The list of runs: states as the directories tell them, orders, differences, and folders that are no run."""

import json
import shutil

import pytest

from widenet.errors import OptionError
from widenet.report.listing import list_runs, listed
from widenet.report.subject import Subject
from widenet.runs import Model
from widenet.training.run_directory import RunDirectory
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
    with pytest.raises(OptionError, match=r'got "loss"\. Known: metric, name, state'):
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
    assert listing.problems[runs / "foreign"] == f"{runs / 'foreign'} is not a run: it has no network.json."
    assert listing.problems[runs / "more" / "weights"].startswith(f"{runs / 'more' / 'weights'}")


def test_links_lead_to_runs_and_to_no_circle(runs):
    (runs / "best").symlink_to("run")
    (runs / "again").symlink_to(".")
    assert set(by_name(runs)) == {"best", "run", "more/other"}


def test_a_folder_may_be_a_run_or_empty_and_must_exist(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(runs / "run")
    assert list(by_name(".")) == ["run"]
    (tmp_path / "empty").mkdir()
    assert (list_runs(tmp_path / "empty").runs, list_runs(tmp_path / "empty").problems) == ([], {})
    with pytest.raises(OptionError, match="is not a folder"):
        list_runs(tmp_path / "nowhere")


def test_a_loss_that_went_up_is_said(runs):
    record = {"epoch": 1, "start_loss": 1.0, "loss": 9.0, "ndcg@5": float("nan")}
    (runs / "run" / "log.jsonl").write_text(f"{json.dumps(record)}\n")
    run = by_name(runs)["run"]
    assert "is far above its start" in run.warning
    assert run.value is None


def test_a_line_that_is_added_while_a_run_is_read_is_no_damage(runs):
    subject, log = Subject("run", RunDirectory.open(runs / "run")), runs / "run" / "log.jsonl"
    assert len(subject.lines) == 3
    log.write_text(log.read_text() + json.dumps({"epoch": 4, "loss": 1.0}) + "\n")
    assert listed(subject).warning is None


def test_a_damaged_log_is_said(runs):
    log = runs / "run" / "log.jsonl"
    assert by_name(runs)["run"].warning is None
    log.write_bytes(log.read_bytes()[:-9])
    assert by_name(runs)["run"].warning == (
        f"{log} is damaged: a line is left out. The weights do not depend on it."
    )
    assert by_name(runs)["run"].epochs == 2
    with locked(runs / "run"):
        shutil.rmtree(runs / "run" / "model")
        assert by_name(runs)["run"].warning is None
