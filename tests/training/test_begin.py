"""Trainings begin with all that they need or not at all, and resume with what they began with."""

import shutil
import sys

import pytest

from tests.described import INTERRUPTED, described, interrupt, network
from tests.mistakes import mistake
from tests.starts import OLD, grown
from tests.trainings import SETTINGS, TIED, UNTIED, Heard
from widenet.errors import CheckpointError, FitError
from widenet.runs import train
from widenet.runs.quantizing import quantize


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return described(tmp_path_factory.mktemp("described") / "data")


@pytest.mark.parametrize("other", [{"genres": ("play", "novel", "poem")}, {"normalize": False}])
def test_a_training_resumes_with_its_descriptions_alone(other, data, tmp_path):
    with_others = described(tmp_path / "others", **other)
    assert with_others.digest == data.digest
    assert with_others.fields == data.fields
    interrupt(network(), data, tmp_path / "run")
    with mistake(FitError):
        train(network(), INTERRUPTED, with_others, tmp_path / "run", resume=True)


@pytest.mark.parametrize("tracks", [True, False])
def test_a_training_resumes_with_another_tracker_which_reaches_no_number(tracks, data, tmp_path, monkeypatch):
    """A tracker that is not installed says so, and shows that it was asked for."""
    for name in ["mlflow", *(name for name in sys.modules if name.startswith("mlflow."))]:
        monkeypatch.setitem(sys.modules, name, None)
    plain, tracked = INTERRUPTED, INTERRUPTED | {"track": "mlflow"}
    before, after = (plain, tracked) if tracks else (tracked, plain)
    steps, heard = iter(range(1, 8)), Heard()
    with pytest.raises(KeyboardInterrupt):
        train(network(), before, data, tmp_path / "run", interrupted=lambda: next(steps) == 7)
    model = train(network(), after, data, tmp_path / "run", resume=True, report=heard)
    assert any("mlflow: must be installed" in text for text in heard.said) == tracks
    undisturbed = train(network(), plain, data, tmp_path / "undisturbed")
    assert model.fingerprint() == undisturbed.fingerprint()


REFUSED = {
    "of other sizes": (UNTIED, "the same", CheckpointError),
    "of other features": (TIED, "others", FitError),
    "in 8 bits": (TIED, "the same", CheckpointError),
    "that has not ended": (TIED, "the same", CheckpointError),
}


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_to_start_from_is_refused_before_the_directory_is_made(refused, overwrite, before, tmp_path):
    network, features, kind = REFUSED[refused]
    start, training = before("adam, tied"), SETTINGS["adam, tied"][1]
    if refused == "of other sizes":
        network = {"layers": [UNTIED["layers"][0], {**UNTIED["layers"][1], "units": 7}, UNTIED["layers"][2]]}
    if refused == "in 8 bits":
        start = quantize(start, tmp_path / "small").run.path
    if refused == "that has not ended":
        start = shutil.copytree(start, tmp_path / "cut")
        shutil.rmtree(start / "model")
    data = grown(tmp_path / "data", [f"{'' if features == 'the same' else 'new '}{number}" for number in OLD])
    heard, there = Heard(), {path.name for path in tmp_path.iterdir()}
    with mistake(kind):
        train(
            network,
            training,
            data,
            tmp_path / "run",
            start_from=start,
            overwrite=overwrite,
            report=heard,
        )
    assert heard.said == []
    assert {path.name for path in tmp_path.iterdir()} == there
