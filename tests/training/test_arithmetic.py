"""The bits of trained weights move with the version of the arithmetic alone, and a training that spans two versions says so."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tests.pages import Page
from tests.trainings import SETTINGS, STEPS, Heard, books
from widenet.report.write import write_report
from widenet.runs import Model, training
from widenet.runs import train as run
from widenet.training import arithmetic
from widenet.training.optimizers import is_compiled

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
"""The first digits of fingerprints, by the version of the arithmetic, what else bits depend on, and the setting."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data")


def test_bits_move_only_with_the_version_of_the_arithmetic(data, tmp_path):
    """Matrix products round as the processor's kind and caches have the library cut them: the values are of one processor and torch."""
    known, here = GOLDEN[str(arithmetic.ARITHMETIC)], _here()
    if here not in known:
        pytest.skip(f"no golden values for {here}")
    models = {name: run(network, {**values, "epochs": 1}, data, tmp_path / name) for name, (network, values) in SETTINGS.items()}
    found = {name: model.fingerprint()[:16] for name, model in models.items()}
    remedy = "Raise ARITHMETIC, list the change in the changelog as Changed, and write this under the new version in golden.json"
    assert found == known.get(here), f"{remedy}: {json.dumps({here: found}, indent=2)}"


def _here() -> str:
    """What the bits of a training on the CPU depend on, besides the arithmetic."""
    lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    facts = {name.strip(): value.strip() for name, _, value in lines}
    processor = ", ".join(f"{name} {facts.get(name, 'unknown')}" for name in ("vendor_id", "cpu family", "model", "stepping", "cache size"))
    compiler = "Numba" if is_compiled("cpu") else "torch alone"
    return f"{processor}, {torch.backends.cpu.get_cpu_capability()}, torch {torch.__version__}, {compiler}"


@pytest.fixture
def later(data, tmp_path, monkeypatch):
    """A training cut short in its second epoch, and the arithmetic of a later version."""
    asked = iter(range(100))
    with pytest.raises(KeyboardInterrupt):
        run(*SETTINGS["momentum"], data, tmp_path / "run", interrupted=lambda: next(asked) == STEPS)
    monkeypatch.setattr(training, "ARITHMETIC", arithmetic.ARITHMETIC + 1)
    return tmp_path / "run"


def test_a_training_that_goes_on_in_another_arithmetic_says_so_wherever_its_bits_are_asked_for(data, later):
    report, versions = Heard(), [arithmetic.ARITHMETIC, arithmetic.ARITHMETIC + 1]
    model = run(*SETTINGS["momentum"], data, later, resume=True, report=report)
    rule = f"{later} was begun with version {versions[0]} of the arithmetic; this widenet has version {versions[1]}"
    assert report.said == [
        f"{rule}: from here on bits may differ from an undisturbed training's, and its fingerprint compares with no other."
    ]
    assert json.loads((later / "model" / "manifest.json").read_text())["facts"]["arithmetic"] == versions
    assert [record.get("arithmetic") for record in model.run.records()] == [None, versions[1], versions[1]]
    warning = f"{later}: {arithmetic.MIXED[0].lower()}{arithmetic.MIXED[1:]}"
    assert model.caveats() == Model.load(later).caveats() == [warning]
    assert arithmetic.MIXED in Page(write_report(later, data=data).read_text("utf-8")).texts["p"]


def test_what_was_trained_in_two_arithmetics_stays_so_when_it_is_cut_short_again_and_is_told_once(data, later):
    with pytest.raises(KeyboardInterrupt):
        run(*SETTINGS["momentum"], data, later, resume=True, interrupted=lambda: True)
    assert any("fingerprint compares with no other" in sentence for sentence in Model.load(later).caveats())
    report = Heard()
    model = run(*SETTINGS["momentum"], data, later, resume=True, report=report)
    assert report.said == []
    assert model.facts["arithmetic"] == [arithmetic.ARITHMETIC, arithmetic.ARITHMETIC + 1]


def test_a_finished_training_keeps_its_arithmetic(data, tmp_path, monkeypatch):
    run(*SETTINGS["momentum"], data, tmp_path / "run")
    monkeypatch.setattr(training, "ARITHMETIC", arithmetic.ARITHMETIC + 1)
    report = Heard()
    model = run(*SETTINGS["momentum"], data, tmp_path / "run", resume=True, report=report)
    assert (report.said, model.caveats(), model.facts["arithmetic"]) == ([], [], [arithmetic.ARITHMETIC])


def test_a_training_that_has_no_steps_left_keeps_its_arithmetic(data, tmp_path, monkeypatch):
    run(*SETTINGS["momentum"], data, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "model")
    monkeypatch.setattr(training, "ARITHMETIC", arithmetic.ARITHMETIC + 1)
    report = Heard()
    model = run(*SETTINGS["momentum"], data, tmp_path / "run", resume=True, report=report)
    assert (report.said, model.caveats(), model.facts["arithmetic"]) == ([], [], [arithmetic.ARITHMETIC])


def test_what_begins_with_weights_of_two_arithmetics_says_so(data, later, tmp_path):
    run(*SETTINGS["momentum"], data, later, resume=True)
    report, mixed = Heard(), f"{arithmetic.MIXED[0].lower()}{arithmetic.MIXED[1:]}"
    model = run(*SETTINGS["momentum"], data, tmp_path / "next", start_from=later, report=report)
    assert f"{later}: {mixed}" in report.said
    assert model.caveats() == [f"{tmp_path / 'next'}: {mixed}"]
    assert model.facts["arithmetic"] == [arithmetic.ARITHMETIC, arithmetic.ARITHMETIC + 1]


def test_a_checkpoint_from_before_the_arithmetic_was_counted_is_of_another(data, tmp_path):
    asked = iter(range(100))
    with pytest.raises(KeyboardInterrupt):
        run(*SETTINGS["momentum"], data, tmp_path / "run", interrupted=lambda: next(asked) == STEPS)
    before = Model.load(tmp_path / "run").facts["state"]
    del before["arithmetic"]
    assert training.LoopState.of(before).arithmetic == [arithmetic.UNCOUNTED]
