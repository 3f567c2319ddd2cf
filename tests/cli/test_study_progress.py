"""The progress of a search: a line for each rung."""

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


def test_a_line_is_printed_for_each_rung(capsys):
    search(StudyProgress())
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
    search(StudyProgress(quiet=True))
    assert capsys.readouterr().err == ""
