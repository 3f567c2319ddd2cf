"""Reports as files: what they hold, that they are always the same, and what is refused."""

import json
import shutil

import pytest

from tests.mistakes import mistake
from tests.older import dataset_of_format_1
from tests.pages import check_alone
from tests.report.conftest import EVIL
from widenet.data.dataset import Dataset
from widenet.data.manifest import Manifest
from widenet.errors import CheckpointError, FitError, OptionError
from widenet.report.write import write_report
from widenet.runs import Model


def read(path):
    return path.read_text("utf-8")


@pytest.fixture
def run(reported, tmp_path):
    """A copy of the run, to be written to."""
    return shutil.copytree(reported / "run", tmp_path / "run")


def test_the_page_shows_the_numbers_of_the_log_and_runs_nothing(run):
    assert write_report(run) == run / "report.html"
    page = check_alone(read(run / "report.html"))
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    for record in records:
        assert f"loss, epoch {record['epoch']}: {record['loss']:.6g}" in page.texts["title"]
        assert f"ndcg@5, epoch {record['epoch']}: {record['ndcg@5']:.6g}" in page.texts["title"]
    sections = [
        "Loss and metrics",
        "Network",
        "Layers",
        "Recommendations",
        "Data",
        "Time",
        "Numbers",
        "Documents",
        "Machine and versions",
    ]
    assert page.texts["h2"] == sections
    assert any(EVIL in text for text in page.texts["li"])
    assert any(EVIL in text for text in page.texts["h3"])
    assert f"net {EVIL}" in page.texts["p"]
    assert (run / "network.json").read_text() in page.texts["pre"]


def test_the_same_run_gives_the_same_file_whoever_asks(reported, run, tmp_path):
    texts = {
        read(write_report(run, tmp_path / "a.html")),
        read(write_report(str(run), str(tmp_path / "new" / "b.html"), reported / "data")),
        read(write_report(Model.load(run), tmp_path / "c.html", Dataset.open(reported / "data"))),
    }
    assert len(texts) == 1
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["b.html"]


def test_without_its_dataset_a_report_is_of_the_run_alone(run):
    machine = json.loads((run / "machine.json").read_text())
    for left in ({**machine, "data": "/nowhere"}, {}):
        (run / "machine.json").write_text(json.dumps(left))
        with pytest.warns(UserWarning, match="dataset") as warned:
            page = check_alone(read(write_report(run)))
        assert warned[0].filename == __file__
        assert "Recommendations" not in page.texts["h2"]


def test_a_run_without_epochs_and_weights_has_a_report(run, tmp_path):
    for name in ("model", "checkpoints"):
        shutil.rmtree(run / name)
    (run / "log.jsonl").unlink()
    page = check_alone(read(write_report(run, tmp_path / "out.html")))
    assert "No epoch has ended yet." in page.texts["p"]
    assert "Recommendations" not in page.texts["h2"]


def test_several_runs_lie_over_each_other(reported, tmp_path):
    page = check_alone(read(write_report([reported / "run", reported / "other"], tmp_path / "out.html")))
    assert page.texts["h2"] == ["Final metrics", "Loss and metrics", "Differences"]
    assert {"run, epoch 3", "other, epoch 2"} <= {text.rpartition(":")[0] for text in page.texts["title"]}


def test_what_cannot_be_reported_is_named(reported, tmp_path):
    with mistake(OptionError):
        write_report([])
    with mistake(CheckpointError, place=tmp_path):
        write_report(tmp_path)
    (tmp_path / "mine").write_text("mine")
    with mistake(OptionError, place="mine", option="overwrite"):
        write_report(reported / "run", tmp_path / "mine")
    with mistake(OptionError, place="mine"):
        write_report(reported / "run", tmp_path / "mine", overwrite=True)
    assert read(tmp_path / "mine") == "mine"
    shutil.copytree(reported / "data", tmp_path / "data")
    width = Manifest.read(tmp_path / "data").fields["items"].width
    dataset_of_format_1(tmp_path / "data", fields__items__width=width + 1)
    with mistake(FitError):
        write_report(reported / "run", tmp_path / "out.html", tmp_path / "data")
    assert not (tmp_path / "out.html").exists()


def test_a_comparison_without_a_path_replaces_reports_alone(reported, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [reported / "run", reported / "other"]
    page = write_report(runs)
    assert write_report(runs) == page
    page.write_text("mine")
    with mistake(OptionError, place="report.html"):
        write_report(runs)
    assert page.read_text() == "mine"
