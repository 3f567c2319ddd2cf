"""`widenet report`: where it writes, and what it refuses."""

from tests.pages import check_alone


def test_a_run_has_its_report_and_several_have_one_here(inside, widenet, tmp_path, monkeypatch):
    ended = widenet("report", "run", "--out", tmp_path / "one.html", "--data", "data")
    assert (ended.status, ended.out, ended.err) == (0, f"{tmp_path / 'one.html'}\n", "")
    assert (tmp_path / "one.html").read_text() == (inside / "run" / "report.html").read_text()
    assert "The Hobbit" in check_alone((tmp_path / "one.html").read_text()).text
    monkeypatch.chdir(tmp_path)
    assert widenet("report", inside / "run", inside / "run").out == "report.html\n"
    assert "2 runs" in check_alone((tmp_path / "report.html").read_text()).texts["h1"]
