"""The run directory: made whole or refused, locked, its checkpoints counted, its log rewound."""

import os
import shutil
from pathlib import Path

import pytest

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, FitError
from widenet.model.build import build
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training import run_path
from widenet.training.checkpoint import fingerprint, publish
from widenet.training.run_directory import RECORDED, RunDirectory

LAYERS = [
    {"name": "in", "kind": "input", "field": "items"},
    {"name": "mid", "units": 2},
    {"name": "out", "kind": "output", "field": "items"},
]
NETWORK = NetworkSpec.of({"layers": LAYERS})
TRAINING = TrainingSpec.of({"shards": 1, "checkpoints": {"keep_last": 2}, "optimizer": "sgd"})


@pytest.fixture
def data(tmp_path):
    return dataset_from_lists(tmp_path / "data", [[0, 1], [2]], titles=["A", "B", "C"])


@pytest.fixture
def run(tmp_path, data):
    return begun(tmp_path / "run", TRAINING, data)


def begun(path, training, data):
    """A run that nobody trains any more."""
    with RunDirectory.begin(path, bind(NETWORK, training, data.fields), data) as run:
        return run


@pytest.fixture
def network(data):
    return build(bind(NETWORK, TRAINING, data.fields), Exchange(1), counts={})


def test_a_run_that_ended_before_its_first_checkpoint_may_be_begun_again(tmp_path, data, run):
    with run.locked():
        run.log({"epoch": 1})
    (run.path / "tensorboard").mkdir()
    other = TrainingSpec.of({"seed": 7})
    begun(tmp_path / "run", other, data)
    assert RunDirectory.open(tmp_path / "run").training == other
    assert sorted(path.name for path in run.path.iterdir()) == [
        ".lock",
        "fields.json",
        "network.json",
        "training.json",
        "vocabulary",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]


@pytest.mark.parametrize(
    "kept",
    ["model/manifest.json", "checkpoints/epoch-00001-step-000000000/x", "notes.txt"],
)
def test_a_run_that_holds_weights_or_a_stranger_is_never_begun_again(kept, tmp_path, data, run):
    (run.path / kept).parent.mkdir(parents=True, exist_ok=True)
    (run.path / kept).write_text("mine")
    with mistake(CheckpointError):
        begun(tmp_path / "run", TRAINING, data)
    assert (run.path / kept).read_text() == "mine"


def test_of_two_new_runs_of_one_name_the_second_gives_way(tmp_path, data, monkeypatch):
    def other_first(beside):
        monkeypatch.undo()
        with mistake(CheckpointError):
            begun(beside.with_name("run"), TRAINING, data)
        shutil.copytree(beside, beside.with_name("run"))
        (beside.with_name("run") / "checkpoints" / "epoch-00001-step-000000000").mkdir(parents=True)

    monkeypatch.setattr(run_path, "force_all_to_disk", other_first)
    with mistake(CheckpointError):
        begun(tmp_path / "run", TRAINING, data)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "run"]


def test_what_is_no_run_is_refused(tmp_path, run):
    with mistake(CheckpointError):
        RunDirectory.open(tmp_path / "data")
    for text in ("{", "[1]", '{"items": {"kind": "sparse"}}'):
        (run.path / "fields.json").write_text(text)
        with mistake(CheckpointError):
            RunDirectory.open(run.path)


@pytest.mark.parametrize(
    "options",
    [
        {"titles": ["A", "B", "C", "D"]},
        {"item_ids": ["2", "1", "0"]},
        {"field": "books", "titles": ["A", "B", "C"]},
    ],
    ids=str,
)
def test_a_dataset_of_other_features_is_refused(options, tmp_path, run, data):
    run.check_dataset(data)
    other = dataset_from_lists(tmp_path / "other", [[0]], width=len(options.get("titles", "ABC")), **options)
    with mistake(FitError, place=tmp_path / "other"):
        run.check_dataset(other)


def checkpoints(run):
    return sorted(path.name for path in (run.path / "checkpoints").iterdir())


def save(run, network, epoch, step=0):
    path = run.checkpoint_path((epoch, step))
    publish(path, network, {"epoch": epoch, "documents": run.digests}, with_state=True)
    run.point_to(path.name)


def test_the_newest_checkpoints_stay_and_the_pointer_names_the_last(run, network):
    assert run.latest() is None
    for epoch, step in ((1, 0), (1, 7), (2, 0), (10, 0)):
        save(run, network, epoch, step)
    assert checkpoints(run) == ["epoch-00002-step-000000000", "epoch-00010-step-000000000", "latest"]
    assert run.latest().facts["epoch"] == 10


@pytest.mark.parametrize(
    "name",
    [
        "epoch-00009-step-000000000",
        "",
        "\udcff",
        "../model",
        "e" * 5000,
        "\0",
    ],
)
def test_a_pointer_to_nothing_names_the_checkpoints_that_are_there(name, run, network):
    save(run, network, 1)
    (run.path / "checkpoints" / "latest").write_bytes(name.encode("utf-8", "surrogateescape"))
    with mistake(CheckpointError):
        run.latest()


def test_the_pointer_is_on_disk_before_an_earlier_checkpoint_goes(run, network, monkeypatch):
    for epoch in (1, 2):
        save(run, network, epoch)
    happened = []
    fsync, replace, rmtree = os.fsync, Path.replace, shutil.rmtree
    monkeypatch.setattr(
        os,
        "fsync",
        lambda file: happened.append(("sync", str(Path(f"/proc/self/fd/{file}").readlink()))) or fsync(file),
    )
    monkeypatch.setattr(
        Path, "replace", lambda path, to: happened.append(("replace", str(to))) or replace(path, to)
    )
    monkeypatch.setattr(
        shutil, "rmtree", lambda path, **more: happened.append(("drop", str(path))) or rmtree(path, **more)
    )
    save(run, network, 3)
    folder = str(run.path / "checkpoints")
    pointed = happened.index(("replace", f"{folder}/latest"))
    dropped = happened.index(("drop", f"{folder}/epoch-00001-step-000000000"))
    assert ("sync", folder) in happened[pointed:dropped]


def test_the_model_is_the_finished_one_or_else_the_newest_checkpoint(run, network):
    with mistake(CheckpointError):
        run.model()
    save(run, network, 1)
    assert run.model().facts["epoch"] == 1
    run.save_model("model", network, {"epochs": 2})
    known = {RECORDED: run.digests, "fingerprint": fingerprint(network)}
    assert run.model().facts == {"epochs": 2, **known}


def test_the_log_is_rewound_to_the_epochs_that_are_finished(run):
    run.rewind_log(3)
    assert not (run.path / "log.jsonl").exists()
    for epoch in (1, 2, 3):
        run.log({"epoch": epoch})
    with (run.path / "log.jsonl").open("a") as file:
        file.write('{"epoch": 4, "lo')
    for epochs, left in ((3, 3), (9, 3), (1, 1), (0, 0)):
        run.rewind_log(epochs)
        lines = [f'{{"epoch": {epoch + 1}}}\n' for epoch in range(left)]
        assert (run.path / "log.jsonl").read_text() == "".join(lines)
    assert not list(run.path.glob(".log*"))


def test_the_log_is_read_without_what_a_power_cut_left_of_a_line(run):
    assert run.records() == []
    run.log({"epoch": 1, "loss": 2.5})
    with (run.path / "log.jsonl").open("a") as file:
        file.write('[1]\n"x"\n{"loss": 3}\n{"epoch": 2, "lo')
    assert run.records() == [{"epoch": 1, "loss": 2.5}]
