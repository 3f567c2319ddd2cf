"""Trainings that cannot begin or go on: what is refused, and what stays."""

from dataclasses import replace
from shutil import rmtree

import pytest

from tests.mistakes import mistake
from tests.trainings import SETTINGS, STEPS, After, Heard, books, log, outcome
from widenet.errors import CheckpointError, FitError, OptionError
from widenet.runs import train
from widenet.training.checkpoint import Checkpoint
from widenet.training.facts import COMPILED, NOT_COMPILED
from widenet.training.run_directory import RunDirectory


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data")


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    """The outcome of the setting "momentum" without an interruption."""
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    train(*SETTINGS["momentum"], data, out)
    return outcome(out)


def test_a_model_without_checkpoints_is_not_trained_anew(data, tmp_path):
    documents = SETTINGS["adam, tied"]
    train(*documents, data, tmp_path / "run")
    rmtree(tmp_path / "run" / "checkpoints")
    before = outcome(tmp_path / "run")
    with mistake(CheckpointError):
        train(*documents, data, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == before


def test_a_run_in_the_current_directory_is_resumed(data, tmp_path, monkeypatch, undisturbed):
    with pytest.raises(KeyboardInterrupt):
        train(*SETTINGS["momentum"], data, tmp_path / "run", interrupted=After(2))
    monkeypatch.chdir(tmp_path / "run")
    train(*SETTINGS["momentum"], data, ".", resume=True)
    assert outcome(tmp_path / "run") == undisturbed


@pytest.fixture
def two_checkpoints(data, tmp_path):
    """A run cut short, with checkpoints after one epoch and after two steps of the next one."""
    network, training = SETTINGS["momentum"]
    with pytest.raises(KeyboardInterrupt):
        train(network, training, data, tmp_path / "run", interrupted=After(STEPS + 2))
    return network, training, data, tmp_path / "run"


DAMAGES = {
    "weights": lambda newest: (newest / "trunk.safetensors").write_bytes(b"half"),
    "manifest": lambda newest: (newest / "manifest.json").unlink(),
    "pointer": lambda newest: (newest.parent / "latest").write_text("epoch-00007"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_resuming_falls_back_to_the_newest_checkpoint_that_is_whole_and_says_so(
    damage, two_checkpoints, undisturbed
):
    *_, out = two_checkpoints
    older, newest, _ = sorted((out / "checkpoints").iterdir())
    DAMAGES[damage](newest)
    report = Heard()
    model = train(*two_checkpoints, resume=True, report=report)
    assert len(report.said) == 1
    assert report.said[0].endswith(
        f"Resuming from {newest.name if damage == 'pointer' else older.name} instead."
    )
    assert (model.fingerprint(), *outcome(out)[1:]) == undisturbed


def test_resuming_with_other_documents_or_without_a_whole_checkpoint_is_refused(two_checkpoints):
    network, training, _, out = two_checkpoints
    before = log(out)
    for changed in (({**network, "name": "other"}, training), (network, {**training, "epochs": 9})):
        with mistake(CheckpointError):
            train(*changed, *two_checkpoints[2:], resume=True)
    for folder in (out / "checkpoints").glob("epoch-*"):
        (folder / "manifest.json").write_text("{}")
    with mistake(CheckpointError, place="epoch-00001-step-000000002/manifest.json"):
        train(*two_checkpoints, resume=True)
    assert log(out) == before


def began_elsewhere(monkeypatch, **changed):
    """Let checkpoints say that another environment began the training."""
    opened = Checkpoint.open

    def elsewhere(path):
        found = opened(path)
        return replace(found, facts=found.facts | {"environment": found.facts["environment"] | changed})

    monkeypatch.setattr(Checkpoint, "open", elsewhere)


def test_resuming_on_another_kind_of_device_is_refused_with_the_option(two_checkpoints, monkeypatch):
    assert RunDirectory.open(two_checkpoints[-1]).latest().facts["environment"]["device"] == "cpu"
    began_elsewhere(monkeypatch, device="cuda")
    with mistake(OptionError):
        train(*two_checkpoints, resume=True, device="cpu")


@pytest.mark.parametrize(("begun", "here"), [("by a library", False), (NOT_COMPILED, True)])
def test_resuming_by_compiled_code_what_was_begun_without_it_is_refused_and_the_other_way_round(
    begun, here, two_checkpoints, monkeypatch
):
    began_elsewhere(monkeypatch, **{COMPILED: begun})
    monkeypatch.setattr("widenet.training.facts.is_compiled", lambda _: here)
    with mistake(FitError):
        train(*two_checkpoints, resume=True)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_resuming_with_another_dataset_is_refused_and_leaves_the_run_as_it_was(data, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train(*SETTINGS["momentum"], data, tmp_path / "run", interrupted=After(STEPS + 1))
    before = files(tmp_path / "run")
    with mistake(FitError):
        train(*SETTINGS["momentum"], books(tmp_path / "other", seed=1), tmp_path / "run", resume=True)
    assert files(tmp_path / "run") == before
