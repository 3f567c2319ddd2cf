"""The sample: what the model recommends, and what was set aside."""

import numpy as np
import pytest

from widenet import dataset_from_lists, train
from widenet.data.dataset import Dataset
from widenet.report.recommendations import K, sampled
from widenet.runs import Model


@pytest.fixture(scope="module")
def found(reported):
    model, dataset = Model.load(reported / "run"), Dataset.open(reported / "data")
    return model, dataset, sampled(model, dataset)


def test_it_recommends_what_the_model_does(found):
    model, dataset, taken = found
    assert (taken.output, taken.truth, len(taken.shown)) == ("next", "validation", 4)
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
    assert [shown.num_history for shown in taken.shown] == [10, 11]
    for shown, row in zip(taken.shown, rows, strict=False):
        assert shown.history == [str(item) for item in row[-9:-1]]
