"""`widenet report`: where it writes, and what it refuses."""

import shutil

from tests.pages import check_alone


def test_a_run_has_its_report_and_several_have_one_here(inside, widenet, tmp_path, monkeypatch):
    ended = widenet("report", "run", "--out", tmp_path / "one.html", "--data", "data")
    assert (ended.status, ended.out, ended.err) == (0, f"{tmp_path / 'one.html'}\n", "")
    assert (tmp_path / "one.html").read_text() == (inside / "run" / "report.html").read_text()
    assert "The Hobbit" in check_alone((tmp_path / "one.html").read_text()).text
    monkeypatch.chdir(tmp_path)
    assert widenet("report", inside / "run", inside / "run").out == "report.html\n"
    assert "2 runs" in check_alone((tmp_path / "report.html").read_text()).texts["h1"]


def test_a_dataset_that_is_gone_is_said(inside, widenet, tmp_path):
    run = shutil.copytree(inside / "run", tmp_path / "run")
    (run / "machine.json").write_text('{"data": "/nowhere"}')
    ended = widenet("report", run)
    assert (ended.status, ended.out) == (0, f"{run / 'report.html'}\n")
    assert ended.err == (
        f"{run}: The dataset is not at hand: /nowhere is gone, or has other items now. The report has"
        " neither its facts nor recommendations. Name it with --data.\n"
    )


def test_what_cannot_be_reported_is_one_sentence(inside, widenet, tmp_path):
    ended = widenet("report", "run", "run", "--data", "data")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
    assert "--data is for the report of one run" in ended.err
    ended = widenet("report", inside / "data")
    assert (ended.status, ended.err) == (
        2,
        f"widenet: {inside / 'data'} is not a run: it has no network.json. Make one with"
        " `widenet train NETWORK TRAINING --data DATA --out RUN`.\n",
    )
    (tmp_path / "file").touch()
    ended = widenet("report", "run", "--out", tmp_path / "file" / "x.html")
    assert (ended.status, ended.err.count("\n")) == (2, 1)
