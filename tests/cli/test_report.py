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
    assert ended.err.startswith(f"{run}: ")
    assert "/nowhere" in ended.err
