"""Sections of a report: times as people say them, and by phase; what is said first."""

import json
import shutil

from tests.pages import Page
from widenet.report.sections import summary, time_section
from widenet.report.subject import Subject
from widenet.runs.quantizing import quantize
from widenet.training.run_directory import RunDirectory


def subject(reported, tmp_path, records, **training):
    run = shutil.copytree(reported / "run", tmp_path / "run")
    (run / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    document = json.loads((run / "training.json").read_text())
    (run / "training.json").write_text(json.dumps({**document, **training}))
    return Subject("run", RunDirectory.open(run))


def test_the_times_of_all_phases_add_up(reported, tmp_path):
    times = {"seconds": 50.0, "reading_seconds": 10.0, "evaluation_seconds": 20.0, "checkpoint_seconds": 30.0}
    page = Page(
        time_section(
            subject(reported, tmp_path, [{"epoch": epoch, "loss": 1.0, **times} for epoch in (1, 2)])
        )
    )
    rows = list(zip(*[iter(page.texts["td"])] * 3, strict=True))
    assert rows == [
        ("steps", "80 s", "40.0%"),
        ("waiting for examples", "20 s", "10.0%"),
        ("evaluation", "40 s", "20.0%"),
        ("checkpoints", "60 s", "30.0%"),
        ("in all", "3 min", "100.0%"),
    ]


def test_a_run_in_8_bits_says_so(reported, tmp_path):
    run = quantize(reported / "run", tmp_path / "small").run
    subject = Subject("small", run)
    assert f"In 8 bits, made of {reported / 'run'}, whose training this page shows." in str(summary(subject))
