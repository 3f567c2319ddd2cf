"""The page of a study: its numbers, its figures, and the best documents beside it."""

import json

import pytest

from tests.pages import Page
from tests.tuning.studies import SPACE
from widenet.spec.network import NetworkSpec
from widenet.tuning.rungs import Trial
from widenet.tuning.study import Facts, Study
from widenet.tuning.study_page import page, write_results

UNITS, RATE = "network.layers[1].units", "training.optimizer.learning_rate"
TRIALS = [
    Trial(0, {UNITS: "2", RATE: 0.1}, 0, {1: 0.25}, spent={"1": 1}),
    Trial(1, {UNITS: "4", RATE: 0.01}, 2, {1: 0.5, 3: 0.5, 9: 0.625}, spent={"1": 2, "3": 5, "9": 14}),
    Trial(2, {UNITS: "6", RATE: 0.02}, 0, {1: 0.375}, spent={"1": 3}),
    Trial(3, {UNITS: "6", RATE: 0.3}, 0, {}, problem="numbers <overflow>."),
    Trial(4, {UNITS: "2", RATE: 0.2}, 0, {}),
]


@pytest.fixture
def study(tmp_path):
    return Study.begin(tmp_path / "study", Facts(SPACE, "0" * 64, [1, 3, 9], 3, 0, "cpu"))


def test_the_page_shows_numbers_figures_and_documents(study):
    shown = page(study, TRIALS)
    read = Page(shown)
    assert read.texts["b"][:8] == ["0.6250", "1", "1", "2", "1", "1", "11", "24.4%"]
    assert [text for text in read.texts["td"] if text in ("finished", "waiting", "training")] == [
        "finished",
        "waiting",
        "waiting",
        "training",
    ]
    assert "Trial 3: numbers <overflow>." in read.texts["p"]
    assert "best ndcg@5" in read.texts["b"]
    assert "importance" in read.texts["b"]
    assert any('"units": 4' in text for text in read.texts["pre"])


def test_the_best_documents_stand_beside_the_page_with_every_default(study):
    with study.journal.alone():
        trial = study.journal.add({UNITS: "4", RATE: 0.01})
        study.reach(trial, 1, 0.5, None)
        write_results(study)
    best = NetworkSpec.read(study.path / "best" / "network.json")
    assert best.layers[1].units == 4
    training = json.loads((study.path / "best" / "training.json").read_text())
    assert training["optimizer"]["learning_rate"] == 0.01
    assert training["keep"] == "best"
    assert "0.5000" in (study.path / "report.html").read_text()
