"""Runs that keep evaluations: written by one process of a group, and refused where they cannot be."""

import json
import re
import shutil
import warnings

import pytest

import widenet
from tests.trainings import UNTIED, books, document
from widenet.errors import FitError, OptionError
from widenet.metrics.kept import kept_evaluations
from widenet.runs import Silence


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    data = books(folder / "data")
    widenet.train(UNTIED, document({"kind": "adam"}), data, folder / "run")
    return folder


def kept(folder):
    metrics = widenet.Model.load(folder / "run").evaluate(folder / "data", "validation", ks=[5], keep=True)
    return dict(metrics)


def files(folder):
    return {path.name: path.read_bytes() for path in (folder / "run" / "evaluations").iterdir()}


def test_two_processes_keep_what_one_keeps(place, groups):
    alone = kept(place)
    written = files(place)
    (found,) = kept_evaluations(place / "run")
    assert found.read() == alone
    assert found.evaluated.part == "validation"
    shutil.rmtree(place / "run" / "evaluations")
    assert groups(2)(kept, place) == [alone, alone]
    assert files(place) == written


def test_a_run_without_final_weights_keeps_nothing(place, tmp_path):
    shutil.copytree(place / "run", tmp_path / "run", ignore=shutil.ignore_patterns("model", "evaluations"))
    model = widenet.Model.load(tmp_path / "run")
    with pytest.raises(OptionError, match="`keep` needs finished weights"):
        model.evaluate(place / "data", "validation", keep=True)
    assert not (tmp_path / "run" / "evaluations").exists()


def test_nor_does_the_copy_of_one_in_a_store(place, monkeypatch):
    monkeypatch.setattr("widenet.stores.cache._root", lambda: place)
    with pytest.raises(OptionError, match="`keep` needs a run on the disk"):
        widenet.Model.load(place / "run").evaluate(place / "data", "validation", keep=True)


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
    with pytest.raises(FitError, match="`propensity` needs the dataset of its training, which is gone"):
        moved.evaluate(tmp_path / "data", "validation", ks=[3], propensity=(0.55, 1.5))


@pytest.fixture(scope="module")
def held(place):
    """A dataset with a held-out part, and the default training on it, which sets a validation part aside."""
    rows = [[(3 * row + step) % 9 for step in range(5)] for row in range(23)]
    data = widenet.dataset_from_lists(place / "held", rows, heldout=[[9]] * len(rows))
    widenet.train(None, None, data, place / "default", report=Silence())
    return data


@pytest.mark.parametrize("run", ["default", "by hand"])
def test_a_run_that_left_a_part_out_says_that_baselines_are_trained_on_it(place, held, run):
    own, again = place / "default" / "data", "train again with `no_validation`"
    if run == "by hand":
        widenet.train(UNTIED, document({"kind": "adam"}), own, place / run)
        again = f"train again on {held.path}"
    model = widenet.Model.load(place / run)
    numbers = [widenet.Dataset.open(each).field("items").num_entries["train"] for each in (own, held.path)]
    assert numbers[0] < numbers[1]
    sentence = (
        f"{place / run} was trained on {numbers[0]} entries, and the baselines on the {numbers[1]} of"
        f" {held.path}. To compare them on equal terms, evaluate with `data={str(own)!r}`, or {again}."
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(sentence)}$") as caught:
        model.evaluate(held, ks=[5], baselines=True)
    assert [each.filename for each in caught] == [__file__]


def test_nothing_is_said_where_no_baseline_learns_from_more(place, held):
    whole = widenet.train(None, None, held, place / "whole", no_validation=True)
    options = {"start_from": place / "whole", "report": Silence()}
    further = widenet.train(None, None, place / "default" / "data", place / "further", **options)
    default = widenet.Model.load(place / "default")
    with warnings.catch_warnings(action="error"):
        whole.evaluate(held, ks=[5], baselines=True)
        default.evaluate(place / "default" / "data", ks=[5], baselines=True)
        default.evaluate(held, ks=[5])
        further.evaluate(held, ks=[5], baselines=True)


def test_a_dataset_without_the_part_is_told_that_of_the_training(place, tmp_path):
    whole = books(tmp_path / "whole", validation=None)
    model = widenet.Model.load(place / "run")
    with pytest.raises(FitError, match=rf"no validation part\. Use {place / 'data'}, which {place / 'run'}"):
        model.evaluate(whole, "validation")
