"""A run as a report sees it: the line that it keeps, its sums."""

import json
import shutil

from widenet.report.subject import Subject
from widenet.training.run_directory import RunDirectory


def test_the_kept_line_is_the_best_where_the_document_keeps_the_best(reported, tmp_path):
    run = shutil.copytree(reported / "run", tmp_path / "run")
    (run / "log.jsonl").write_text(
        "".join(f'{{"epoch": {epoch}, "ndcg@5": {value}}}\n' for epoch, value in ((1, 0.5), (2, 0.25)))
    )
    training = json.loads((run / "training.json").read_text())
    for keep, epoch in (("best", 1), ("last", 2)):
        (run / "training.json").write_text(json.dumps({**training, "keep": keep}))
        assert Subject("run", RunDirectory.open(run)).kept["epoch"] == epoch


def test_numbers_that_are_not_finite_are_left_out(reported, tmp_path):
    run = shutil.copytree(reported / "run", tmp_path / "run")
    huge = f"1{'0' * 400}"
    lines = [
        '{"epoch": 1, "loss": NaN, "seconds": 2.0}',
        f'{{"epoch": 2, "loss": {huge}, "seconds": Infinity}}',
        f'{{"epoch": {huge}, "loss": 1.0}}',
        '{"epoch": 3, "loss": -Infinity, "seconds": 1.5, "name": "2.5"}',
    ]
    (run / "log.jsonl").write_text("\n".join(lines))
    subject = Subject("run", RunDirectory.open(run))
    third = {"epoch": 3, "seconds": 1.5, "name": "2.5"}
    assert subject.records == [{"epoch": 1, "seconds": 2.0}, {"epoch": 2}, third]
    assert subject.total("seconds") == 3.5
