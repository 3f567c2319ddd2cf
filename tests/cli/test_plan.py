"""`widenet plan`: what it prints, what it refuses; and `widenet train`, which refuses what does not fit."""

import json
from pathlib import Path

import pytest

from widenet.data.manifest import Manifest

DOCUMENTS = ["plan", "network.json", "training.json"]


@pytest.fixture
def plan(inside, widenet):
    assert inside == Path.cwd()
    return lambda *words: widenet(*DOCUMENTS, *words)


def test_it_tells_who_holds_what_and_what_it_takes(plan):
    ended = plan("--width", "items=1_000_000_000", "--processes", "2", "--device-memory", "141GB")
    assert ended.status == 0
    lines = ended.out.splitlines()
    assert lines[1].split(maxsplit=5) == [
        "taste/history",
        "1,000,000,000",
        "4",
        "16.0",
        "GB",
        "in shards of rows",
    ]
    assert "A checkpoint: 108 GB on disk; a run keeps 2." in lines
    assert lines[-1].startswith("Fits: a process needs 63.3 GB ")


@pytest.mark.usefixtures("inside")
def test_without_documents_it_plans_what_train_does_without_them(tmp_path, widenet):
    run = tmp_path / "run"
    assert widenet("train", "--data", "data", "--out", run, "--no-validation").status == 0
    common = "--data", "data", "--device-memory", "1GB", "--json"
    expected = widenet("plan", run / "network.json", run / "training.json", *common).out
    assert widenet("plan", *common).out == expected
    own = json.loads(widenet("plan", "network.json", *common).out)
    assert (own["batch_size"], own["weights"]["taste/history"]["columns"]) == (
        json.loads(expected)["batch_size"],
        json.loads(Path("network.json").read_text())["layers"][1]["units"],
    )
    refused = widenet("plan", "network.json", "--width", "items=9")
    assert (refused.status, refused.out) == (2, "")


def test_a_dataset_gives_widths_and_entries(plan, world):
    found = json.loads(plan("--data", "data", "--json").out)
    field = Manifest.read(world / "data").fields["items"]
    assert found["entries_per_example"] == {"items": field.num_entries["train"] / 12}
    assert found["weights"]["next"] == {"rows": 9, "columns": 4, "bytes": 144, "wide": True}
    assert found["processes"] == [
        {
            "process": 0,
            "shards": [0, 2],
            "rows": {"taste/history": 9, "next": 9},
            "memory_bytes": found["memory_bytes"]["total"],
        }
    ]
    assert found["fits"]
    assert "Assumed" not in plan("--data", "data").out
    assert "Assumed: 100 stored entries" in plan("--width", "items=9").out


@pytest.mark.usefixtures("inside")
def test_a_training_that_does_not_fit_is_refused_before_it_begins(widenet, tmp_path, monkeypatch):
    monkeypatch.setattr("widenet.parallel.group.available_memory", lambda: 100)
    ended = widenet("train", "network.json", "training.json", "--data", "data", "--out", tmp_path / "run")
    assert (ended.status, ended.out) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_a_network_along_a_sequence_needs_no_dataset_to_be_planned(inside, tmp_path, widenet):
    layers = [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "state", "kind": "recurrent", "units": 4},
        {"name": "next", "kind": "output", "field": "items", "predict": "next"},
    ]
    (tmp_path / "gru.json").write_text(json.dumps({"layers": layers}))
    ended = widenet("plan", tmp_path / "gru.json", inside / "training.json", "--width", "items=1000")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines()[1].split()[:3] == ["state/history", "1,000", "12"]


def test_weights_that_a_gpu_does_not_hold_lie_in_the_hosts_memory(plan):
    words = ["--width", "items=2_000_000_000", "--device-memory", "80GB"]
    refused = plan(*words, "--weights-in", "device")
    assert refused.status == 1
    ended = plan(*words)
    assert ended.status == 0
    assert "In the host's memory, each process: 192 GB of weights and optimizer state" in ended.out
    assert ended.out.splitlines()[-1].startswith("Fits with weights in the host's memory: a process needs ")
    found = json.loads(plan(*words, "--json").out)
    assert found["weights_in"] == "host"
    too_small = plan("--width", "items=2_000_000_000", "--device-memory", "1GB")
    assert too_small.status == 1
    assert too_small.out.splitlines()[-1].startswith("Does not fit: ")


@pytest.mark.usefixtures("inside")
def test_a_measured_plan_tells_what_training_takes_and_leaves_nothing(widenet, inside):
    before = sorted(inside.rglob("*"))
    words = ["network.json", "training.json", "--data", "data", "--measure", "--device", "cpu"]
    ended = widenet("plan", *words)
    assert (ended.status, ended.err) == (0, "")
    found = json.loads(widenet("plan", *words, "--json").out)["measured"]
    assert 0 < found["step_seconds"] <= found["epoch_seconds"] <= found["training_seconds"]
    assert sorted(inside.rglob("*")) == before
