"""The bits of trained weights move with the version of the arithmetic alone, and a training that spans two
versions says so.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.pages import Page
from tests.trainings import SETTINGS, STEPS, Heard, books
from widenet.kernels.processor import instruction_sets
from widenet.report.write import write_report
from widenet.runs import resume
from widenet.runs import train as run
from widenet.training import state
from widenet.training.optimizers import is_compiled

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
"""By the version of the arithmetic: the release of torch, the first digits of fingerprints in portable
bits, and where they were seen.
"""
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="portable bits are those of x86-64")
@pytest.mark.skipif(not is_compiled("cpu"), reason="the values are those of code that Numba compiles")
@pytest.mark.skipif(
    torch.__version__.split("+")[0] != GOLDEN[str(state.ARITHMETIC)]["torch"],
    reason="each torch has its own MKL",
)
def test_portable_bits_move_only_with_the_version_of_the_arithmetic(tmp_path):
    """On every processor, whatever limits the environment sets."""
    known = GOLDEN[str(state.ARITHMETIC)]
    command = [sys.executable, "-m", "tests.golden", str(tmp_path)]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(ended.stdout)
    remedy = (
        "Raise ARITHMETIC, list the change in the changelog as Changed, and write this under the new version"
        " in golden.json"
    )
    assert found == known["fingerprints"], f"{remedy}: {json.dumps(found, indent=1)}"
    processor = instruction_sets()["processor"]
    if processor not in known["seen on"]:
        print(
            'The bits are those of golden.json. Add this processor to "seen on" there:'
            f" {json.dumps(processor)}"
        )


@pytest.fixture
def later(data, tmp_path, monkeypatch):
    """A training cut short in its second epoch, and the arithmetic of a later version."""
    asked = iter(range(100))
    with pytest.raises(KeyboardInterrupt):
        run(*SETTINGS["momentum"], data, tmp_path / "run", interrupted=lambda: next(asked) == STEPS)
    monkeypatch.setattr(resume, "ARITHMETIC", state.ARITHMETIC + 1)
    return tmp_path / "run"


def test_a_training_that_goes_on_in_another_arithmetic_says_so_wherever_its_bits_are_asked_for(data, later):
    report, versions = Heard(), [state.ARITHMETIC, state.ARITHMETIC + 1]
    model = run(*SETTINGS["momentum"], data, later, resume=True, report=report)
    rule = (
        f"{later} was started with version {versions[0]} of the arithmetic; this widenet has version"
        f" {versions[1]}"
    )
    assert report.said == [
        f"{rule}: from here on bits may differ from an undisturbed training's, and its fingerprint compares"
        " with no other."
    ]
    assert json.loads((later / "model" / "manifest.json").read_text())["facts"]["arithmetic"] == versions
    assert [record.get("arithmetic") for record in model.run.records()] == [None, versions[1], versions[1]]
    page = Page(write_report(later, data=data).read_text("utf-8"))
    assert state.mixed_arithmetic("This run") in page.texts["p"]


def test_what_was_trained_in_two_arithmetics_stays_so_when_it_is_cut_short_again_and_is_told_once(
    data, later
):
    with pytest.raises(KeyboardInterrupt):
        run(*SETTINGS["momentum"], data, later, resume=True, interrupted=lambda: True)
    report = Heard()
    model = run(*SETTINGS["momentum"], data, later, resume=True, report=report)
    assert report.said == []
    assert model.facts["arithmetic"] == [state.ARITHMETIC, state.ARITHMETIC + 1]


def test_a_finished_training_keeps_its_arithmetic(data, tmp_path, monkeypatch):
    run(*SETTINGS["momentum"], data, tmp_path / "run")
    monkeypatch.setattr(resume, "ARITHMETIC", state.ARITHMETIC + 1)
    report = Heard()
    model = run(*SETTINGS["momentum"], data, tmp_path / "run", resume=True, report=report)
    assert (report.said, model.facts["arithmetic"]) == ([], [state.ARITHMETIC])


def test_a_training_that_has_no_steps_left_keeps_its_arithmetic(data, tmp_path, monkeypatch):
    run(*SETTINGS["momentum"], data, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    monkeypatch.setattr(resume, "ARITHMETIC", state.ARITHMETIC + 1)
    report = Heard()
    model = run(*SETTINGS["momentum"], data, tmp_path / "run", resume=True, report=report)
    assert (report.said, model.facts["arithmetic"]) == ([], [state.ARITHMETIC])


def test_what_begins_with_weights_of_two_arithmetics_says_so(data, later, tmp_path):
    run(*SETTINGS["momentum"], data, later, resume=True)
    report = Heard()
    model = run(*SETTINGS["momentum"], data, tmp_path / "next", start_from=later, report=report)
    assert state.mixed_arithmetic(later) in report.said
    assert model.facts["arithmetic"] == [state.ARITHMETIC, state.ARITHMETIC + 1]
