"""Several runs: the best is marked, and every difference of documents is found."""

from dataclasses import replace

import pytest

from tests.pages import Page
from widenet.report.listing import differing
from widenet.report.several_runs import curves_over_each_other, differences, final_numbers, lines_of
from widenet.report.subject import Subject
from widenet.training.run_directory import RunDirectory


@pytest.fixture(scope="module")
def subjects(reported):
    return [Subject(name, RunDirectory.open(reported / name)) for name in ("run", "other")]


def test_the_last_lines_stand_side_by_side_and_the_best_is_marked(subjects):
    page = Page(final_numbers(subjects))
    first, second = (subject.last for subject in subjects)
    assert page.texts["th"] == ["run", "other"]
    better = [name for name in first if name.startswith(("recall", "ndcg")) and first[name] != second[name]]
    assert better
    for name in better:
        assert f"{max(first[name], second[name]):.4g}" in page.texts["mark"]
    losses = [f"{subject.last['loss']:.4g}" for subject in subjects]
    assert not set(losses) & set(page.texts["mark"])


def test_only_places_that_differ_are_listed(subjects):
    page = Page(differences(subjects))
    assert {"network.name", "training.epochs", "training.optimizer.learning_rate"} <= set(page.texts["td"])
    assert not {"training.batch_size", "training.seed", "network.layers[taste].units"} & set(page.texts["td"])
    assert {"2", "0.01"} <= set(page.texts["mark"])
    assert Page(differences([subjects[0], subjects[0]])).texts["p"] == ["No difference."]


def test_a_place_that_one_document_lacks_or_has_in_another_kind_differs():
    assert differing([{"a": None, "b": [1, 2]}, {"b": [1, 2]}]) == [{"a": None}, {}]
    assert differing([{"a": 1}, {"a": True}]) == [{"a": 1}, {"a": True}]


def test_every_metric_has_its_figure_with_a_line_a_run(subjects):
    page = Page(curves_over_each_other(subjects))
    assert page.texts["b"][:2] == ["loss", "precision@5"]
    assert page.count("polyline") == 2 * len(page.texts["b"])
    assert page.texts["span"].count("run") == 1


def test_different_losses_have_axes_of_their_own(subjects):
    (output,) = subjects[1].run.network.outputs
    of_units = output.model_copy(update={"loss_weight": 2.0})
    layers = tuple(of_units if layer is output else layer for layer in subjects[1].run.network.layers)
    network = subjects[1].run.network.model_copy(update={"layers": layers})
    third = replace(subjects[1], name="third", run=replace(subjects[1].run, network=network))
    lines = lines_of([*subjects, third])
    assert list(lines)[:2] == ["loss of run, other", "loss of third"]
    assert [name for name, line in lines["loss of run, other"].items() if line] == ["run", "other"]
    assert [name for name, line in lines["loss of third"].items() if line] == ["third"]
    assert list(lines["loss of third"]) == ["run", "other", "third"]
