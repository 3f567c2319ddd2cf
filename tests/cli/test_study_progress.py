"""The progress of a search: a line for each rung, and a bar on a terminal."""

import io

import pytest
from rich.console import Console

from widenet.cli import tune as study_progress
from widenet.cli.tune import StudyProgress


def search(report):
    report.begin(0, 0, 3)
    for epoch in range(1, 4):
        report.epoch(0, {"epoch": epoch})
    report.reach(0, 3, 0.25)
    report.begin(1, 0, 3)
    report.reach(1, 3, 0.125)
    report.fail(2, "numbers overflow.")
    report.say("Worker 0 was lost; `resume` it.")
    report.begin(0, 3, 9)
    report.stop()


def test_a_line_is_printed_for_each_rung(capsys):
    search(StudyProgress(4))
    assert capsys.readouterr().err.splitlines() == [
        "trial   0  epochs   3  0.2500  best of this rung",
        "trial   1  epochs   3  0.1250",
        "trial   2  failed: numbers overflow.",
        "Worker 0 was lost; `resume` it.",
    ]
    resumed = StudyProgress(4)
    resumed.resume({0: {3: 0.125, 9: 0.5}, 1: {3: 0.25}, 2: {}})
    for trial, value in ((3, 0.1875), (4, 0.25), (5, 0.3125)):
        resumed.reach(trial, 3, value)
    lines = capsys.readouterr().err.splitlines()
    assert [" best of this rung" in line for line in lines] == [False, False, True]
    search(StudyProgress(4, quiet=True))
    assert capsys.readouterr().err == ""


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_terminal_shows_a_bar(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        study_progress, "Console", lambda **_: Console(file=shown, force_terminal=True, width=120)
    )
    report = StudyProgress(4)
    search(report)
    assert "2/4 trials" in shown.getvalue()
    assert "3 epochs  best 0.2500 after epoch 3  trial 0 to epoch 9" in shown.getvalue()
