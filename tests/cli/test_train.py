"""`widenet train`: what it says, and how it ends."""

import json
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.scripts import Conversation
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.data.overlap import trained_on
from widenet.runs import Model, train


@pytest.fixture
def line(inside, tmp_path):
    assert inside == Path.cwd()
    return ["train", "network.json", "training.json", "--data", "data", "--out", str(tmp_path / "run")]


def test_it_shows_a_line_an_epoch_then_the_fingerprint_and_what_comes_next(line, widenet):
    ended = widenet(*line)
    assert ended.status == 0
    first, second, report, following = ended.err.splitlines()
    metrics = "".join(rf"  {name} \d\.\d{{4}}" for name in ("recall@3", "recall@20", "ndcg@20"))
    assert re.fullmatch(rf"epoch 1/2  loss \d\.\d{{4}}  \d+\.\d s  [\d,]+ users/s{metrics}", first)
    assert second.startswith("epoch 2/2  loss ")
    assert report == f"Report: {line[-1]}/report.html"
    assert (
        following
        == f"Next: widenet evaluate {line[-1]} --data data, or widenet predict {line[-1]} --data data --out"
        " recommendations.parquet"
    )
    assert ended.out == f"{line[-1]}: trained. Fingerprint {Model.load(line[-1]).fingerprint()}\n"


def test_what_comes_next_counts_seen_items_as_the_training_did(line, widenet, tmp_path):
    document = json.loads(Path("training.json").read_text())
    training = tmp_path / "seen.json"
    training.write_text(json.dumps({**document, "evaluation": {**document["evaluation"], "seen": "include"}}))
    ended = widenet(*[str(training) if word == "training.json" else word for word in line])
    words = f"{line[-1]} --data data --include-seen"
    assert ended.err.splitlines()[-1] == (
        f"Next: widenet evaluate {words}, or widenet predict {words} --out recommendations.parquet"
    )


def test_after_a_network_that_ranks_repeats_seen_items_count(widenet, tmp_path):
    data, run = tmp_path / "data", tmp_path / "run"
    dataset_from_lists(data, [[0, 1, 2]], validation=[[1]], width=3, sequence=True)
    network = {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "state", "kind": "recurrent", "units": 2},
            {"name": "next", "kind": "output", "field": "items", "predict": "next", "repeats": [0, 4, 2]},
        ]
    }
    (tmp_path / "network.json").write_text(json.dumps(network))
    (tmp_path / "training.json").write_text('{"epochs": 1}')
    documents = tmp_path / "network.json", tmp_path / "training.json"
    first, *_, last = widenet("train", *documents, "--data", data, "--out", run).err.splitlines()
    assert first.startswith(
        f'{documents[1]} has no "evaluation", so that no epoch is measured on the validation part.'
    )
    words = f"{run} --data {data} --include-seen"
    assert last.startswith(f"Next: widenet evaluate {words} --part validation, or widenet predict {words} ")


def test_quiet_says_nothing_and_trains_the_same(line, widenet, world):
    ended = widenet(*line, "--quiet")
    assert (ended.status, ended.out, ended.err) == (0, "", "")
    assert Model.load(line[-1]).fingerprint() == Model.load(world / "run").fingerprint()


def test_it_binds_the_documents_once_and_opens_the_dataset_once(line, widenet):
    calls = Counter()

    def count(frame, event, _):
        if event == "call" and frame.f_code.co_qualname in ("bind", "shapes_of", "Dataset.open"):
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(count)
    try:
        ended = widenet(*line)
    finally:
        sys.setprofile(None)
    assert ended.status == 0
    assert calls == {"bind": 1, "shapes_of": 1, "Dataset.open": 1}


@pytest.mark.parametrize("precision", ["bfloat16", "tf32", "float32"])
def test_it_says_that_other_precisions_are_no_faster_on_a_cpu(precision, line, widenet, world, tmp_path):
    training = tmp_path / "training.json"
    training.write_text(
        json.dumps(json.loads((world / "training.json").read_text()) | {"precision": precision})
    )
    ended = widenet(*[str(training) if word == "training.json" else word for word in line])
    assert ended.status == 0
    sentences = {
        "bfloat16": "A CPU multiplies bfloat16 operands in float32: training is no faster than with float32.",
        "tf32": "A CPU has no TF32: it multiplies in float32, as with precision float32.",
    }
    said = [name for name, sentence in sentences.items() if sentence in ended.err]
    assert said == [precision] * (precision != "float32")


def test_weights_on_a_disk_that_would_fit_into_memory_are_named(line, widenet):
    ended = widenet(*line, "--weights-in", "disk")
    assert ended.status == 0
    assert "These weights would also fit into memory, where training is faster." in ended.err


def test_a_folder_for_weights_on_a_disk_alone_is_refused(line, widenet, tmp_path):
    ended = widenet(*line, "--scratch", tmp_path)
    assert (ended.status, ended.out) == (2, "")
    assert (
        "--scratch is the folder for weights on a disk. Add --weights-in disk, or leave it out" in ended.err
    )


def test_a_resumed_training_says_where_it_goes_on(line, widenet, world, monkeypatch):
    monkeypatch.setattr("widenet.cli.progress.TrainingReport.advance", lambda *_: signal_itself())
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
    assert "The training is finished and saved, but its report could not be written: no pen.\n" in ended.err
    assert "Report: " not in ended.err
    assert ended.out.startswith(f"{line[-1]}: trained.")
    assert Model.load(line[-1]).fingerprint() == Model.load(world / "run").fingerprint()


def signal_itself():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("prepared.prepared", "Stopped before the first step: nothing new is saved."),
        ("training.build", "Stopped before the first checkpoint, so there is nothing to resume."),
    ],
)
def test_an_interruption_before_the_first_checkpoint_promises_nothing(
    place, said, line, widenet, monkeypatch
):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"widenet.runs.{place}", interrupt)
    ended = widenet(*line)
    assert (ended.status, ended.out) == (130, "")
    assert ended.err == f"{said} Run the same command again.\n"


def test_overwrite_replaces_a_run_once_the_new_one_has_a_checkpoint(line, widenet, monkeypatch, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    assert widenet(*line, "--quiet").status == 0
    refused = widenet(*line)
    assert refused.status == 2
    assert "exists already. Resume it with --resume, replace it with --overwrite, or choose" in refused.err
    with monkeypatch.context() as patch:
        patch.setattr("widenet.runs.training.build", interrupt)
        ended = widenet(*line, "--overwrite")
    assert ended.status == 130
    assert ended.err == f"Stopped before the first checkpoint: {line[-1]} is the earlier run again.\n"
    assert (Path(line[-1]) / "model").is_dir()
    (Path(line[-1]) / "report.html").write_text("old")
    assert widenet(*line, "--overwrite").status == 0
    assert (Path(line[-1]) / "report.html").read_text() != "old"
    both = widenet(*line, "--overwrite", "--resume")
    assert (both.status, "Give one of them" in both.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_keeps_its_documents_with_every_default_written_out(world):
    kept = json.loads((world / "run" / "training.json").read_text())
    assert (kept["epochs"], kept["optimizer"]["learning_rate"], kept["evaluation"]["part"]) == (
        2,
        0.001,
        "validation",
    )


@pytest.mark.usefixtures("inside")
def test_documents_that_are_not_named_are_usual_ones_which_the_run_keeps(widenet, tmp_path):
    run = tmp_path / "run"
    ended = widenet("train", "--data", "data", "--out", run)
    said = f"No network.json and no training.json was named: widenet uses a default and saves it in {run}.\n"
    assert ended.status == 0
    assert ended.err.startswith(said)
    assert widenet("train", "--data", "data", "--out", run).err.startswith(f"widenet: {run} exists already.")
    assert json.loads((run / "training.json").read_text())["evaluation"]["part"] == "validation"
    again = widenet(
        "train", run / "network.json", run / "training.json", "--data", "data", "--out", tmp_path / "again"
    )
    assert again.out.split()[-1] == ended.out.split()[-1]
    assert "was named" not in again.err
    third = widenet("train", "network.json", "--data", "data", "--out", tmp_path / "third")
    assert third.err.startswith("No training.json was named:")
    assert "as from nothing" not in ended.err + third.err
    line = ["--data", "data", "--overwrite", "--out", tmp_path / "on", "--from", run]
    same = widenet("train", run / "network.json", *line)
    goes_on = f"the network of {run} goes on for a few epochs at a small learning rate.\n"
    assert same.err.startswith(f"No training.json was named: {goes_on}")
    assert "as from nothing" not in same.err
    alone = widenet("train", *line)
    assert alone.err.startswith(f"No network.json and no training.json was named: {goes_on}")
    changed = json.loads((run / "network.json").read_text())
    changed["layers"][0]["denoise"] = 0.1
    (tmp_path / "changed.json").write_text(json.dumps(changed))
    other = widenet("train", tmp_path / "changed.json", *line)
    assert f"It trains as from nothing. To keep more of {run}, name a training.json with" in other.err


@pytest.mark.usefixtures("inside")
def test_a_training_document_may_stand_alone_and_the_network_is_then_that_of_the_start(widenet, tmp_path):
    run = tmp_path / "run"
    line = ["--data", "data", "--out", tmp_path / "on", "--from", run]
    assert widenet("train", "--data", "data", "--out", run).status == 0
    named = widenet("train", run / "network-fitted.json", "training.json", *line)
    alone = widenet("train", "training.json", *line, "--overwrite")
    assert alone.err.startswith(f"No network.json was named: the network is that of {run}.\n")
    assert alone.out == named.out
    first = widenet("train", "training.json", "--data", "data", "--out", tmp_path / "first")
    assert first.err.startswith("No network.json was named: widenet uses a default")
    assert json.loads((tmp_path / "first" / "training.json").read_text())["epochs"] == 2


@pytest.mark.usefixtures("inside")
def test_a_run_goes_on_with_its_own_documents_where_none_are_named(widenet, world, tmp_path):
    run, left = tmp_path / "run", iter(range(4))
    with pytest.raises(KeyboardInterrupt):
        train("network.json", "training.json", "data", run, interrupted=lambda: next(left) == 3)
    ended = widenet("train", "--data", "data", "--out", run, "--resume")
    assert (ended.status, ended.err.splitlines()[0]) == (0, "Resuming in epoch 2, after step 1.")
    assert Model.load(run).fingerprint() == Model.load(world / "run").fingerprint()


@pytest.mark.usefixtures("inside")
def test_a_start_from_another_split_says_what_of_this_one_it_has_seen_and_so_does_its_evaluation(
    widenet, tmp_path
):
    other, run, again = tmp_path / "other", tmp_path / "run", tmp_path / "again"
    shares = ["--heldout", 0.25, "--validation", 0.25, "--seed", 1]
    assert widenet("data", "split", "whole", "--out", other, *shares).status == 0
    line = ["train", "network.json", "training.json", "--data", other, "--out"]
    first, second = Dataset.open("data"), Dataset.open(other)
    seen = {part: trained_on(second, "items", part, first) for part in ("validation", "heldout")}
    held = second.fields["items"].num_entries
    said = (
        f"{other} does not hold the examples that {Path.cwd()}/run, with whose weights {run} began, was"
        " trained on: of the"
    )
    parts = (
        f"{held['validation'] + held['heldout']} entries of its validation and heldout parts,"
        f" {sum(seen.values())} were trained on."
    )
    began = widenet(*line, run, "--from", "run")
    taken, warning, *_ = began.err.splitlines()
    assert re.fullmatch(r"run: all \d+ weights begin with its\.", taken.removeprefix(f"{Path.cwd()}/"))
    assert (began.status, warning) == (0, f"{said} {parts} Its metrics will be too good.")
    evaluated = widenet("evaluate", run, "--data", other, "--json").err
    assert (
        evaluated
        == f"{said} {held['heldout']} entries of its heldout part, {seen['heldout']} were trained on.\n"
    )
    assert (
        "trained on"
        not in widenet(
            "train", "network.json", "training.json", "--data", "data", "--out", again, "--from", "run"
        ).err
    )
    assert widenet("evaluate", again, "--data", "data", "--json").err == ""


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
    said = (
        "widenet: standard output cannot be written: No space left on device. Free some space, or choose"
        " another place."
    )
    assert (process.returncode, told.splitlines()[-1]) == (2, said)
    assert (run / "report.html").is_file()
    assert Model.load(run).fingerprint() == Model.load(inside / "run").fingerprint()


def test_an_unknown_tracker_is_refused_before_anything_is_said(widenet, inside, tmp_path):
    assert inside == Path.cwd()
    ended = widenet("train", "--data", "data", "--out", tmp_path / "run", "--track", "wandb")
    assert (ended.status, ended.out, ended.err.startswith("widenet: --track must be mlflow:URI")) == (
        2,
        "",
        True,
    )
