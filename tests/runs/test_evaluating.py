"""Evaluations of a run: propensities, a part that is missing, and entries that it was trained on."""

import json
import shutil
import warnings

import pytest

import widenet
from tests.mistakes import mistake
from tests.trainings import UNTIED, books, document
from widenet.errors import FitError


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    data = books(folder / "data")
    widenet.train(UNTIED, document({"kind": "adam"}), data, folder / "run")
    return folder


def test_propensities_count_in_the_dataset_of_the_training(place, tmp_path):
    """Another dataset to evaluate has other counts; without that of the training there are none."""
    model = widenet.Model.load(place / "run")
    found = model.evaluate(place / "data", "validation", ks=[3], propensity=(0.55, 1.5))
    shutil.copytree(place / "run", tmp_path / "run")
    shutil.copytree(place / "data", tmp_path / "data")
    machine = tmp_path / "run" / "machine.json"
    machine.write_text(json.dumps({**json.loads(machine.read_text("utf-8")), "data": "gone"}), "utf-8")
    moved = widenet.Model.load(tmp_path / "run")
    assert 0 < found["psp@3"] <= 1
    with mistake(FitError, option="propensity"):
        moved.evaluate(tmp_path / "data", "validation", ks=[3], propensity=(0.55, 1.5))


def test_entries_of_a_part_that_a_run_or_its_start_was_trained_on_are_counted(tmp_path):
    rows = [[e % 5, 5 + e % 4] for e in range(12)]
    data = widenet.dataset_from_lists(tmp_path / "data", rows, heldout=[[9] for _ in rows])
    other = widenet.dataset_from_lists(tmp_path / "other", [[*row, 9] for row in rows])
    training = document({"kind": "adam"}, evaluation=None, epochs=1)
    first = widenet.train(UNTIED, training, other, tmp_path / "first")
    second = widenet.train(UNTIED, training, data, tmp_path / "second", start_from=tmp_path / "first")
    for model in (first, second):
        with pytest.warns(UserWarning, match=rf"^{tmp_path}/first was trained on 12 of the 12 ") as caught:
            model.evaluate(data, ks=[3])
        assert [each.filename for each in caught] == [__file__]
    shutil.rmtree(tmp_path / "first")
    with warnings.catch_warnings(action="error"):
        second.evaluate(data, ks=[3])
