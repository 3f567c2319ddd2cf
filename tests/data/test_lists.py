"""Datasets from lists: sorted and described as given, and one sentence for everything that is no such
list.
"""

import numpy as np

from widenet.data.lists import dataset_from_lists


def test_lists_are_sorted_with_their_values_and_described(tmp_path):
    dataset = dataset_from_lists(
        tmp_path / "ds",
        [[3, 1], []],
        values=[[0.5, 4.0], []],
        heldout=[[0], []],
        titles=["a", "b", None, "d"],
    )
    field = dataset.fields["items"]
    rows = dataset.sparse("items", slice(None))
    assert (rows.indices.tolist(), rows.values.tolist()) == ([1, 3], [4.0, 0.5])
    assert (field.width, field.has_values, field.min_value, field.max_value) == (4, True, 0.5, 4.0)
    assert dataset.vocabulary("items").titles([0, 2]) == ["a", "2"]
    assert dataset.vocabulary("items").counts.tolist() == [0, 1, 0, 1]


def test_numpy_rows_are_lists_too(tmp_path):
    dataset = dataset_from_lists(
        tmp_path / "ds",
        [np.array([2, 0]), np.array([], dtype=np.int64)],
        dense={"age": np.ones((2, 3))},
        weights=np.ones(2),
    )
    assert dataset.sparse("items", slice(None)).indices.tolist() == [0, 2]
    assert dataset.dense("age", slice(None)).shape == (2, 3)
