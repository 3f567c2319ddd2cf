"""Runs: resumed trainings have the bits of undisturbed ones, whatever interrupted them; loaded models
answer as trained ones.
"""

import json
import shutil
import signal

import pytest

from tests.scripts import Script
from tests.trainings import SETTINGS, STEPS, After, books, outcome
from widenet.errors import CheckpointError
from widenet.runs import Model, Silence, train


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data")


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    """The outcome of each setting without an interruption, trained once."""
    known = {}

    def get(name):
        if name not in known:
            out = tmp_path_factory.mktemp("undisturbed") / "run"
            train(*SETTINGS[name], data, out)
            known[name] = outcome(out)
        return known[name]

    return get


STOPS = [
    ("momentum", (7, 3, 1, 1)),
    *((name, (7, 3)) for name in SETTINGS if name != "momentum"),
    *((name, (STEPS,)) for name in ("nesterov", "rmsprop", "adadelta", "adagrad, tied")),
]
"""Every setting stops within an epoch and at the end of the second one. Those stop at the end of the first
one, too, whose first epochs end otherwise than the second: without a metric, as the best so far, or without a
checkpoint.
"""


@pytest.mark.parametrize(("name", "stops"), STOPS, ids=str)
def test_a_resumed_training_has_the_bits_losses_and_metrics_of_an_undisturbed_one(
    name, stops, data, undisturbed, tmp_path
):
    out = tmp_path / "run"
    for count, stop in enumerate(stops):
        with pytest.raises(KeyboardInterrupt):
            train(*SETTINGS[name], data, out, resume=count > 0, interrupted=After(stop))
    model = train(*SETTINGS[name], data, out, resume=True)
    assert outcome(out) == undisturbed(name)
    assert model.fingerprint() == undisturbed(name)[0]


def test_a_training_that_starts_from_a_run_begins_with_its_weights_also_when_it_is_resumed(data, tmp_path):
    network, training = SETTINGS["adam, tied"]
    first, out = train(network, training, data, tmp_path / "first"), tmp_path / "second"
    lazy = {"optimizer": {"kind": "sgd", "learning_rate": 1e-30}, "warmup_steps": 0, "keep": "last"}
    given = network, {**training, **lazy}, data, out
    with pytest.raises(KeyboardInterrupt):
        train(*given, start_from=tmp_path / "first", interrupted=After(1))
    shutil.rmtree(out / "checkpoints")
    with pytest.raises(CheckpointError):
        train(*given, start_from=tmp_path / "third", resume=True)
    resumed = train(*given, start_from=tmp_path / "first", resume=True)
    assert resumed.fingerprint() == first.fingerprint()


def test_a_training_that_never_wrote_a_checkpoint_resumes_from_its_beginning(data, undisturbed, tmp_path):
    class Crash(Silence):
        def advance(self, *_):
            raise RuntimeError("a crash")

    with pytest.raises(RuntimeError):
        train(*SETTINGS["momentum"], data, tmp_path / "run", report=Crash())
    train(*SETTINGS["momentum"], data, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == undisturbed("momentum")


@pytest.mark.parametrize("name", ["momentum", "sgd, l2"])
def test_the_model_of_an_interrupted_run_has_its_idle_rows_up_to_date(name, data, tmp_path):
    network, training = SETTINGS[name]
    training = {**training, "evaluation": None}
    short = train(network, {**training, "epochs": 2}, data, tmp_path / "short")
    with pytest.raises(KeyboardInterrupt):
        train(network, training, data, tmp_path / "run", interrupted=After(2 * STEPS))
    assert Model.load(tmp_path / "run").fingerprint() == short.fingerprint()


DRIVER = """
import os, signal, sys
from pathlib import Path
from widenet.cli import main
from widenet.runs import progress

by, at, seen = getattr(signal, os.environ["BY"]), os.environ["AT"], 0

class Report(progress.TrainingReport):
    def advance(self, num_examples, loss):
        global seen
        seen += 1
        if str(seen) == at:
            os.kill(os.getpid(), by)
        super().advance(num_examples, loss)

def rename(path, target, rename=Path.rename):
    rename(path, target)
    if at == "rename" and path.name == "best":
        os.kill(os.getpid(), by)

progress.TrainingReport, Path.rename = Report, rename
main(sys.argv[1:])
"""
"""The command line in a process of its own that gets a signal at an exact point: in a step, or while
"best" is being replaced.
"""


def train_in_process(folder, name, data, by, at):
    for file, values in zip(("network.json", "training.json"), SETTINGS[name], strict=True):
        (folder / file).write_text(json.dumps(values))
    options = ["network.json", "training.json", "--data", str(data.path), "--out", "run"]
    script = Script(DRIVER, folder / "said", {"BY": by, "AT": at}, ["train", *options], folder)
    _, complained = script.communicate(120)
    return script.returncode, complained


def test_a_process_ended_by_sigterm_saves_its_work_and_says_how_to_go_on(data, undisturbed, tmp_path):
    status, complained = train_in_process(tmp_path, "momentum", data, "SIGTERM", "8")
    again = f"widenet train network.json training.json --data {data.path} --out run --resume"
    assert status == 130
    assert complained.splitlines()[-2:] == ["Stopped; run holds a checkpoint. Resume with:", f"  {again}"]
    assert (tmp_path / "run" / "checkpoints" / "latest").read_text() == "epoch-00001-step-000000003\n"
    train(tmp_path / "network.json", tmp_path / "training.json", data, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == undisturbed("momentum")


@pytest.mark.parametrize(("name", "at", "epochs"), [("rmsprop", "6", 1), ("nesterov", "rename", 1)])
def test_a_killed_process_loses_no_more_than_the_work_since_its_last_checkpoint(
    name, at, epochs, data, undisturbed, tmp_path
):
    assert train_in_process(tmp_path, name, data, "SIGKILL", at)[0] == -signal.SIGKILL
    checkpoints = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    saved = [f"epoch-{epoch:05}-step-000000000" for epoch in range(1, epochs + 1)]
    assert checkpoints == [*saved, "latest"]
    train(*SETTINGS[name], data, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == undisturbed(name)
    left = {path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".")}
    assert left == {".lock"}
