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


def test_a_search_prints_its_rungs_and_the_best(widenet, files, tmp_path):
    ended = widenet("tune", *files, "--trials", 2)
    assert ended.status == 0
    first, *rest = ended.err.splitlines()
    assert first.startswith("trial   0  epochs   3  0.")
    line = rest[-1].removeprefix("Next: widenet ").replace("recommendations", str(tmp_path / "found"))
    assert widenet(*line.split()).status == 0
    assert ended.out.startswith(
        f"{tmp_path / 'study'}: 2 trials in 12 epochs, 66.7% of training each to the end.\n"
    )
    assert "\nBest: trial " in ended.out
    again = widenet("tune", *files, "--trials", 2, "--resume", "--json")
    facts = json.loads(again.out)
    assert again.err == ""
    assert facts["rungs"] == [3, 9]
    assert f"Fingerprint {facts['best']['fingerprint']}" in ended.out
    assert [trial["state"] for trial in facts["trials"]].count("finished") == 1


def test_a_chosen_object_is_shown_without_what_is_open_in_it(widenet, files):
    """Lines of their own say what was chosen there."""
    sgd = {"kind": "sgd", "learning_rate": {"between": [0.1, 0.2]}}
    training = {**SPACE["training"], "optimizer": {"from": [sgd]}, "seed": {"from": [7]}}
    files[0].write_text(json.dumps({**SPACE, "training": training}))
    ended = widenet("tune", *files, "--trials", 3)
    lines = ended.out.splitlines()
    assert "  training.optimizer: sgd" in lines
    assert "  training.seed: 7" in lines
    [rate] = [line for line in lines if line.startswith("  training.optimizer.from[0].learning_rate: 0.1")]
    assert 0.1 <= float(rate.split()[-1]) <= 0.2


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

    monkeypatch.setattr(StudyProgress, "epoch", interrupt)
    ended = widenet("tune", *files, "--trials", 1)
    assert ended.status == 130
    *_, command = ended.err.splitlines()
    assert command.split()[:3] == ["widenet", "tune", str(tmp_path / "space.json")]
    assert command.endswith("--resume")
    monkeypatch.undo()
    ended = widenet(*command.split()[1:])
    assert ended.status == 0


def follow(report):
    report.begin(0, 0, 3)
    for epoch in range(1, 4):
        report.epoch(0, {"epoch": epoch})
    report.reach(0, 3, 0.25)
    report.begin(1, 0, 3)
    report.reach(1, 3, 0.125)
    report.fail(2, "numbers overflow.")
    report.say("Worker 0 was lost; `resume` it.")
    report.begin(0, 3, 9)


def test_a_line_is_printed_for_each_rung(capsys):
    follow(StudyProgress())
    assert capsys.readouterr().err.splitlines() == [
        "trial   0  epochs   3  0.2500  best of this rung",
        "trial   1  epochs   3  0.1250",
        "trial   2  failed: numbers overflow.",
        "Worker 0 was lost; `resume` it.",
    ]
    resumed = StudyProgress()
    resumed.resume({0: {3: 0.125, 9: 0.5}, 1: {3: 0.25}, 2: {}})
    for trial, value in ((3, 0.1875), (4, 0.25), (5, 0.3125)):
        resumed.reach(trial, 3, value)
    lines = capsys.readouterr().err.splitlines()
    assert [" best of this rung" in line for line in lines] == [False, False, True]
    follow(StudyProgress(quiet=True))
    assert capsys.readouterr().err == ""
