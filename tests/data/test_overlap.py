"""What a dataset holds out that another trains on."""

import pytest

from widenet.data import describe
from widenet.data.lists import dataset_from_lists


@pytest.mark.parametrize("rows_at_once", [1, 2, 16_384])
def test_entries_count_where_user_and_item_are_trained_on(rows_at_once, monkeypatch, tmp_path):
    monkeypatch.setattr(describe, "_ROWS_AT_ONCE", rows_at_once)
    training = dataset_from_lists(
        tmp_path / "training", [[0, 1, 2], [3], [0, 4]], ids=["a", "b", "c"], width=5
    )
    data = dataset_from_lists(
        tmp_path / "data",
        [[3], [0], [0], [2]],
        heldout=[[0, 4], [1, 2], [1, 2, 3], []],
        validation=[[3], [3, 4], [3], [0]],
        ids=["c", "new", "a", "b"],
        width=5,
    )
    assert describe.trained_on(data, "items", "heldout", training) == 4
    assert describe.trained_on(data, "items", "validation", training) == 0
    assert describe.trained_on(data, "items", "train", training) == 1


def test_what_comes_again_in_a_sequence_does_not_count(tmp_path):
    def sequences(name, rows, **parts):
        return dataset_from_lists(tmp_path / name, rows, ids=["a", "b"], width=5, sequence=True, **parts)

    # Cut of the same sequences: nothing that is held out was trained on.
    whole = sequences("whole", [[0, 1, 2, 1], [3, 4, 3]], heldout=[[1, 3], [4]])
    cut = sequences("cut", [[0, 1, 2], [3, 4]], validation=[[1], [3]])
    assert describe.trained_on(whole, "items", "heldout", cut) == 0
    longer = sequences("longer", [[0, 1, 2, 1, 1, 3], [3, 4, 3]])
    assert describe.trained_on(whole, "items", "heldout", longer) == 1


def test_features_are_known_by_their_names(tmp_path):
    training = dataset_from_lists(
        tmp_path / "training", [[0, 1], [2]], ids=["a", "b"], item_ids=["x", "y", "z"]
    )
    data = dataset_from_lists(
        tmp_path / "data",
        [[], []],
        heldout=[[0, 1, 4], [2, 3]],
        ids=["a", "b"],
        item_ids=["new", "x", "y", "z", "y2"],
    )
    assert describe.trained_on(data, "items", "heldout", training) == 2
