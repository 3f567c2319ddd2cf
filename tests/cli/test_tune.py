"""`widenet tune`: what it prints, as text and as JSON, its progress, and how it resumes."""

import json
import signal

import pytest

from tests.tuning.studies import SPACE, people
from widenet.cli.tune import StudyProgress


@pytest.fixture
def files(tmp_path):
    people(tmp_path / "data")
    (tmp_path / "space.json").write_text(json.dumps(SPACE))
    return [tmp_path / "space.json", "--data", tmp_path / "data", "--out", tmp_path / "study", "--rungs", 2]


def test_a_search_prints_its_trials_and_the_best(widenet, files, tmp_path):
    ended = widenet("tune", *files, "--trials", 2)
    assert ended.status == 0
    *_, last = ended.err.splitlines()
    assert "\ntrial   0  finished  epochs   9  0." in f"\n{ended.err}"
    line = last.removeprefix("Next: widenet ").replace("recommendations", str(tmp_path / "found"))
    assert widenet(*line.split()).status == 0
    again = widenet("tune", *files, "--trials", 2, "--resume", "--json")
    facts = json.loads(again.out)
    epochs = facts["total_epochs"]
    assert ended.out.startswith(
        f"{tmp_path / 'study'}: 2 trials in {epochs} epochs, {epochs / 18:.1%} of training each to the end.\n"
    )
    assert "\nBest: trial " in ended.out
    assert again.err == ""
    assert facts["rungs"] == [3, 9]
    assert f"Fingerprint {facts['best']['fingerprint']}" in ended.out
    assert [trial["state"] for trial in facts["trials"]].count("finished") >= 1


def test_a_study_is_refused_as_a_run_by_name(widenet, files, tmp_path):
    widenet("tune", *files, "--trials", 2)
    study = tmp_path / "study"
    for path in (study, study / "best"):
        refused = widenet("fingerprint", path)
        assert (refused.status, refused.err.startswith(f"widenet: {path}")) == (2, True)
    documents = [study / "best" / name for name in ("network.json", "training.json")]
    before = sorted(study.rglob("*"))
    for path, *more in ((study / "best",), (study / "best", "--overwrite"), (study,)):
        refused = widenet("train", *documents, "--data", tmp_path / "data", "--out", path, *more)
        assert (refused.status, refused.err.startswith(f"widenet: {path}")) == (2, True)
    assert sorted(study.rglob("*")) == before
    listed = json.loads(widenet("runs", study, "--json").out)
    assert {run["name"] for run in listed["runs"]} == {"trials/00000", "trials/00001"}
    assert listed["problems"] == []


def test_ctrl_c_prints_the_command_that_resumes(widenet, files, tmp_path, monkeypatch):
    def interrupt(*_):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(StudyProgress, "begin", interrupt)
    ended = widenet("tune", *files, "--trials", 1)
    assert ended.status == 130
    *_, command = ended.err.splitlines()
    assert command.split()[:3] == ["widenet", "tune", str(tmp_path / "space.json")]
    assert command.endswith("--resume")
    monkeypatch.undo()
    ended = widenet(*command.split()[1:])
    assert ended.status == 0
