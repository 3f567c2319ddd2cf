"""Comparing two trained runs: from Python, and the same bits in one process and in several."""

import pytest

import widenet
from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import ArgumentError, CheckpointError, OptionError

LAYERS = [
    {"name": "in", "kind": "input", "field": "items"},
    {"name": "mid", "units": 4, "activation": "tanh"},
    {"name": "out", "kind": "output", "field": "items"},
]
LIKED = [[(user + step * (1 + user % 3)) % 20 for step in range(8)] for user in range(30)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    data = dataset_from_lists(
        folder / "data",
        [liked[:5] for liked in LIKED],
        validation=[liked[5:6] for liked in LIKED],
        heldout=[liked[6:] for liked in LIKED],
        width=20,
    )
    for name, epochs in (("short", 1), ("long", 12)):
        training = {"epochs": epochs, "batch_size": 10, "shards": 3}
        widenet.train({"layers": LAYERS}, training, data, folder / name)
    return folder


def comparison(folder):
    return widenet.compare(folder / "short", folder / "long", folder / "data", ks=[2, 5])


def test_the_means_are_those_of_both_evaluations(place):
    found = comparison(place)
    assert (found.level, found.num_examples) == (0.95, 30)
    for run, side in (("short", "first"), ("long", "second")):
        metrics = widenet.Model.load(place / run).evaluate(place / "data", ks=[2, 5])
        assert {name: getattr(each, side) for name, each in found.metrics.items()} == {
            name: metrics[name] for name in found.metrics
        }


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_compare_with_the_bits_of_one(size, place, groups):
    assert groups(size)(comparison, place) == [comparison(place)] * size


def with_more(folder):
    found = widenet.Model.load(folder / "long").evaluate(folder / "data", ks=[5], beyond=True, groups=True)
    return dict(found), {name: dict(metrics) for name, metrics in found.groups.items()}


def test_an_evaluation_has_more_metrics_and_groups_when_asked(place, groups):
    found, by_group = with_more(place)
    plain = widenet.Model.load(place / "long").evaluate(place / "data", ks=[5])
    assert {name: found[name] for name in plain} == plain
    assert found.keys() - plain.keys() == {"novelty@5", "diversity@5", "gini@5"}
    assert plain.groups == {}
    # All have six known items, so all are among the shortest histories.
    assert by_group.keys() == {"new users", "head items", "tail items"}
    ends = {"least": 6, "most": 6}
    assert by_group["new users"] == ends | {name: plain[name] for name in by_group["new users"].keys() - ends}
    assert groups(2)(with_more, place) == [(found, by_group)] * 2


def test_what_cannot_be_compared_is_said(place):
    with mistake(CheckpointError):
        widenet.compare(place / "short", place / "none", place / "data")
    with mistake(ArgumentError):
        widenet.compare(place / "short", place / "long", place / "data", "train")
    with mistake(OptionError, option="level"):
        widenet.compare(place / "short", place / "long", place / "data", level=95)
