"""The demonstration: runs on generated and on given data, beats popularity, touches nobody's files."""

import json
import re
import shlex

import pytest

import widenet.demo
from widenet.cli import main
from widenet.data.invented_books import write_catalogue_csv


@pytest.fixture
def small(tmp_path, monkeypatch):
    """The demonstration with fewer books, readers and epochs."""
    documents = tmp_path / "documents"
    documents.mkdir()
    for name in ("network.json", "training.json"):
        values = json.loads((widenet.demo._DOCUMENTS / name).read_text())
        (documents / name).write_text(json.dumps(values | ({"epochs": 4} if "epochs" in values else {})))
    monkeypatch.setattr(widenet.demo, "_DOCUMENTS", documents)
    monkeypatch.setattr(
        widenet.demo,
        "write_catalogue_csv",
        lambda folder: write_catalogue_csv(folder, num_users=600, num_items=300),
    )


@pytest.mark.usefixtures("small")
def test_the_command_runs_twice_with_the_same_outcome(tmp_path, capsys):
    shown = []
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(["demo", "--out", str(tmp_path / "a demo")])
        assert ended.value.code in (0, None)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    ours, others = (
        re.search(rf"^{name} +(\S+)", shown[0], re.MULTILINE)[1] for name in ("widenet", "popularity")
    )
    assert float(ours) > 1.5 * float(others) > 0
    assert (tmp_path / "a demo" / "run" / "report.html").is_file()
    assert shown[0].count("To somebody who had, among others: ") == 3
    (_, *words) = shlex.split(shown[0].splitlines()[-1].partition(": ")[2])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code in (0, None)
    assert capsys.readouterr().out
