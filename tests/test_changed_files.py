"""Runs whose files have changed: every changed byte, edited document and missing file is found before a
weight is used.
"""

import shutil

import pytest

from tests.flips import flips, outcome
from tests.mistakes import mistake
from tests.trainings import After
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, DataError, WidenetError
from widenet.model.build import build
from widenet.parallel.exchange import Exchange
from widenet.runs import Model, train
from widenet.training.checkpoint import Checkpoint
from widenet.training.run_directory import DOCUMENTS, RunDirectory
from widenet.training.state import LoopState

TRAINING = {
    "epochs": 3,
    "batch_size": 4,
    "shards": 2,
    "seed": 1,
    "evaluation": {},
    "keep": "best",
    "checkpoints": {"min_seconds": 0},
    "optimizer": {"kind": "adam", "learning_rate": 0.1},
}
EPOCH_STEPS = 2


def network(activation="tanh"):
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 3, "activation": activation},
        {"name": "out", "kind": "output", "field": "items"},
    ]
    return {"layers": layers}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    lists = [[0, 1], [2], [1, 3, 4], [0], [5, 2], [1, 5], [3], [4, 0]]
    validation = [[2], [1], [0], [2], [1], [0], [1], [2]]
    path = tmp_path_factory.mktemp("data") / "data"
    return dataset_from_lists(path, lists, validation=validation, titles=list("ABCDÉF"))


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    train(network(), TRAINING, data, out)
    return out


@pytest.fixture(scope="module")
def cut_short(data, tmp_path_factory):
    """A run that was interrupted within its third epoch, whose state names a best evaluation."""
    out = tmp_path_factory.mktemp("cut") / "run"
    with pytest.raises(KeyboardInterrupt):
        train(network(), TRAINING, data, out, interrupted=After(2 * EPOCH_STEPS + 1))
    return out


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


@pytest.fixture
def unfinished(cut_short, tmp_path):
    return shutil.copytree(cut_short, tmp_path / "unfinished")


def everything(run, data):
    """All that predictions, an evaluation and a resumed training read of a run."""
    directory = RunDirectory.open(run)
    directory.check_dataset(data)
    model = Model.load(run)
    names = directory.vocabulary("items")
    checkpoints = [*map(directory.checkpoint, directory.checkpoints())]
    built = build(directory.layout, Exchange(2), counts={})
    state = LoopState(**checkpoints[0].facts["state"])
    for checkpoint in (*checkpoints, directory.best(state.epoch, state.best_epoch)):
        checkpoint.check_files(built)
    return (
        model.fingerprint(),
        names.ids(range(6)),
        names.titles(range(6)),
        names.counts.tolist(),
        sorted(each.digest for each in checkpoints),
    )


UNREAD = {".lock", "log.jsonl", "machine.json", "report.html"}
"""Files that tell people how a training went, and reach no number."""


def test_every_changed_bit_of_a_run_is_found(run, data):
    undisturbed = outcome(lambda: everything(run, data))
    assert isinstance(undisturbed, tuple), undisturbed
    files = [path for path in run.rglob("*") if path.is_file() and "tensorboard" not in path.parts]
    for path in sorted(path for path in files if path.name not in UNREAD):
        number = 16 if path.name in DOCUMENTS else 2 if path.suffix == ".safetensors" else 6
        for place, found in flips(path, 7, number, lambda: everything(run, data)):
            # A changed `latest` may name the other checkpoint, or end in another space.
            harmless = path.name == "latest" and found == undisturbed
            assert isinstance(found, WidenetError) or harmless, f"{path}: {place}: {found}"
    assert outcome(lambda: everything(run, data)) == undisturbed


def test_a_training_makes_no_step_on_a_changed_example_and_leaves_no_weights(data, tmp_path):
    folder = shutil.copytree(data.path, tmp_path / "data")

    def trained():
        steps = []
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        try:
            train(network(), TRAINING, folder, tmp_path / "run", interrupted=lambda: bool(steps.append(1)))
        finally:
            assert steps == []

    path = folder / "examples-00000.arrow"
    [rows] = data.manifest.files[path.name].blocks.bodies
    for place, found in [*flips(path, 3, 6, trained), *flips(path, 4, 12, trained, within=rows)]:
        assert isinstance(found, DataError), f"{place}: {found}"
        assert not (tmp_path / "run" / "checkpoints").exists()


def damaged(best):
    path = next(best.glob("wide-*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def of_another_epoch(best):
    directory, facts = RunDirectory.open(best.parent), Checkpoint.open(best).facts
    built = build(directory.layout, Exchange(2), counts={})
    directory.save_model("best", built, {**facts, "epoch": 0})


@pytest.mark.parametrize("change", [shutil.rmtree, damaged, of_another_epoch])
def test_a_training_that_keeps_the_best_weights_does_not_go_on_without_them(change, unfinished, data):
    change(unfinished / "best")
    with mistake(CheckpointError, place="unfinished/best"):
        train(None, None, data, unfinished, resume=True)


def test_best_weights_of_an_epoch_that_comes_again_are_replaced(unfinished, finished, data):
    """As after a crash between saving the best weights and the checkpoint that names them."""
    assert Checkpoint.open(finished / "best").facts["epoch"] == 3
    assert LoopState(**RunDirectory.open(unfinished).latest().facts["state"]).epoch == 2
    shutil.rmtree(unfinished / "best")
    shutil.copytree(finished / "best", unfinished / "best")
    assert (
        train(None, None, data, unfinished, resume=True).fingerprint() == Model.load(finished).fingerprint()
    )
