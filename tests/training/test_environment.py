"""What decides how numbers round is kept with a checkpoint, and a resumed training says what has changed
of it.
"""

import pytest
import torch

from tests.trainings import UNTIED, Heard, books, document
from widenet.kernels.native import instruction_sets
from widenet.runs import train
from widenet.training import facts
from widenet.training.run_directory import RunDirectory
from widenet.training.state import ARITHMETIC

CPU = torch.device("cpu")
TRAINING = document({"kind": "momentum", "learning_rate": 0.1}, evaluation=None)


@pytest.fixture
def run(tmp_path):
    """A run that was interrupted after its first step."""
    with pytest.raises(KeyboardInterrupt):
        train(UNTIED, TRAINING, books(tmp_path / "data"), tmp_path / "run", interrupted=lambda: True)
    return tmp_path / "run"


def resumed(run):
    heard = Heard()
    return (
        train(UNTIED, TRAINING, run.with_name("data"), run, resume=True, report=heard).fingerprint(),
        heard.said,
    )


def test_a_checkpoint_holds_what_decides_how_its_numbers_were_rounded(run):
    kept = RunDirectory.open(run).latest().facts["environment"]
    assert kept == facts.environment(CPU)
    assert kept["torch"] == torch.__version__
    assert kept["arithmetic"] == str(ARITHMETIC)
    assert {
        f"instruction set ({library})": value for library, value in instruction_sets().items()
    }.items() <= kept.items()
    assert kept["MKL"] != "none" or not torch.backends.mkl.is_available()


def test_a_training_that_resumes_on_other_libraries_or_processors_says_so_and_goes_on(
    run, tmp_path, monkeypatch
):
    undisturbed = train(UNTIED, TRAINING, tmp_path / "data", tmp_path / "undisturbed").fingerprint()
    sets = {**instruction_sets(), "mkl": "an older one"}
    monkeypatch.setattr(facts, "instruction_sets", lambda: sets)
    monkeypatch.setattr(torch, "__version__", "2.8.0")
    before = RunDirectory.open(run).latest().facts["environment"]
    found, said = resumed(run)
    changed = (
        f"torch 2.8.0, before {before['torch']}; instruction set (mkl) an older one, before"
        f" {before['instruction set (mkl)']}"
    )
    rest = "from here on bits may differ from an undisturbed training's."
    assert said == [f"{run} resumes with other software or another processor ({changed}): {rest}"]
    assert found == undisturbed
    assert resumed(run) == (undisturbed, [])
