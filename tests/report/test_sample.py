"""The sample: what the model recommends, what was set aside, and shares that add up."""

import numpy as np
import pytest

from widenet import dataset_from_lists, train
from widenet.data.dataset import Dataset
from widenet.report import recommendations as sample
from widenet.report.recommendations import K, sampled
from widenet.runs import Model


@pytest.fixture(scope="module")
def found(reported):
    model, dataset = Model.load(reported / "run"), Dataset.open(reported / "data")
    return model, dataset, sampled(model, dataset)


def test_it_recommends_what_the_model_does(found):
    model, dataset, taken = found
    assert (taken.output, taken.num_users, taken.num_items, taken.truth) == ("next", 23, 31, "validation")
    users = dataset.ids(slice(None))
    for shown in taken.shown:
        row = np.array([users.index(shown.user)])
        names, history = dataset.vocabulary("items"), dataset.sparse("items", row).indices.numpy()
        assert shown.history == names.titles(history)[:8]
        assert shown.num_history == len(history)
        recommended = model.recommend(names.ids(history), k=K)
        assert [title for title, _, _ in shown.recommended] == [each.title for each in recommended]
        aside = names.titles(dataset.sparse("items", row, "validation").indices.numpy())
        assert [hit for _, _, hit in shown.recommended] == [each.title in aside for each in recommended]


def test_of_a_sequence_it_shows_the_newest_items_that_the_model_reads(tmp_path):
    rows = [[(user + step * step) % 23 for step in range(11 + user)] for user in range(3)]
    data = dataset_from_lists(
        tmp_path / "data",
        [row[:-2] for row in rows],
        validation=[row[-2:-1] for row in rows],
        heldout=[row[-1:] for row in rows],
        width=23,
        sequence=True,
    )
    taken = sampled(train(None, {"epochs": 1}, data, tmp_path / "run"), data)
    assert [shown.num_history for shown in taken.shown] == [10, 11, 12]
    for shown, row in zip(taken.shown, rows, strict=True):
        assert shown.history == [str(item) for item in row[-9:-1]]


def test_groups_go_from_the_most_popular_items_to_the_others_and_add_up(found):
    _, dataset, taken = found
    groups = taken.groups
    for name in ("items", "interactions", "recommended"):
        assert sum(getattr(group, name) for group in groups) == pytest.approx(1)
    rates = [group.interactions / group.items for group in groups]
    assert rates == sorted(rates, reverse=True)
    assert groups[-1].items == pytest.approx(0.5, abs=0.02)
    assert 0 < taken.num_distinct <= dataset.fields["items"].width


def test_a_sample_is_spread_over_the_whole_dataset_and_cut_in_blocks(found, monkeypatch):
    model, dataset, taken = found
    monkeypatch.setattr(sample, "rows_a_block", lambda _: 4)
    assert sampled(model, dataset) == taken
    monkeypatch.setattr(sample, "MOST_USERS", 7)
    assert sampled(model, dataset).num_users == 7
    assert sample._spread(23, 3).tolist() == [0, 11, 22]
    assert sample._spread(2, 3).tolist() == [0, 1]
