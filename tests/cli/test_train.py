"""`widenet train`: what it says, and how it ends."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.scripts import Conversation
from widenet.runs import Model


@pytest.fixture
def line(inside, tmp_path):
    assert inside == Path.cwd()
    return ["train", "network.json", "training.json", "--data", "data", "--out", str(tmp_path / "run")]


def test_quiet_says_nothing_and_trains_the_same(line, widenet, world):
    ended = widenet(*line, "--quiet")
    assert (ended.status, ended.out, ended.err) == (0, "", "")
    assert Model.load(line[-1]).fingerprint() == Model.load(world / "run").fingerprint()


def test_a_resumed_training_says_where_it_goes_on(line, widenet, world, monkeypatch):
    monkeypatch.setattr("widenet.runs.progress.TrainingReport.advance", lambda *_: signal_itself())
    ended = widenet(*line)
    assert ended.status == 130
    assert ended.err.splitlines()[-1] == f"  widenet {' '.join(line)} --resume"
    monkeypatch.undo()
    monkeypatch.chdir(world)
    ended = widenet(*line, "--resume")
    assert ended.err.startswith("Resuming in epoch 1, after step 1.\n")
    assert Model.load(line[-1]).fingerprint() == Model.load(world / "run").fingerprint()


def test_a_report_that_cannot_be_written_costs_a_line_and_not_the_training(line, widenet, world, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no pen.")

    monkeypatch.setattr("widenet.report.write.page", fail)
    ended = widenet(*line)
    assert ended.status == 0
    assert "no pen" in ended.err
    assert "Report: " not in ended.err
    assert ended.out.startswith(f"{line[-1]}: trained.")
    assert Model.load(line[-1]).fingerprint() == Model.load(world / "run").fingerprint()


def signal_itself():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("inside")
def test_documents_that_are_not_named_are_usual_ones_which_the_run_keeps(widenet, tmp_path):
    run = tmp_path / "run"
    ended = widenet("train", "--data", "data", "--out", run)
    said = f"No network.json and no training.json was named: widenet uses a default and saves it in {run}.\n"
    assert ended.status == 0
    assert ended.err.startswith(said)
    assert widenet("train", "--data", "data", "--out", run).err.startswith(f"widenet: {run}: ")
    assert json.loads((run / "training.json").read_text())["evaluation"]["part"] == "validation"
    again = widenet(
        "train", run / "network.json", run / "training.json", "--data", "data", "--out", tmp_path / "again"
    )
    assert again.out.split()[-1] == ended.out.split()[-1]
    assert "was named" not in again.err


TO_A_FULL_DISK = """
import os
os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
from widenet.cli import main
main()
"""


def test_standard_output_that_is_full_costs_the_exit_status_and_not_the_training(inside, tmp_path):
    run = tmp_path / "run"
    line = ["train", "network.json", "training.json", "--data", "data", "--out", str(run)]
    process = Conversation(line, TO_A_FULL_DISK)
    _, told = process.communicate()
    said = "widenet: standard output: No space left on device."
    assert (process.returncode, told.splitlines()[-1]) == (2, said)
    assert (run / "report.html").is_file()
    assert Model.load(run).fingerprint() == Model.load(inside / "run").fingerprint()
