"""Datasets from lists: sorted and described as given, and one sentence for everything that is no such
list.
"""

import numpy as np
import pytest

from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError, OptionError

NAN = float("nan")


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


def test_lists_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(
        DataError, match=r"column 'items\.heldout' must have one row for each of 2 examples; got 1"
    ):
        dataset_from_lists(tmp_path / "ds", [[0], [1]], heldout=[[1]])
    with pytest.raises(OptionError, match="values must have one number beside each index of 'items'"):
        dataset_from_lists(tmp_path / "ds", [[0], [1]], values=[[1], []])
    with pytest.raises(DataError, match="must name 3 features; got 1 and 3"):
        dataset_from_lists(tmp_path / "ds", [[0], [1]], width=3, item_ids=["x"])


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"items": [[0], [-1, 2]]}, r"column 'items': indices must lie in \[0, 3\); got -1 to 2"),
        ({"items": [[0], [-5]]}, r"column 'items': indices must lie in \[0, 1\); got -5 to 0"),
        ({"heldout": [[0], [-1]]}, r"column 'items.heldout': indices must lie in \[0, 3\); got -1 to 0"),
        ({"sparse": {"tags": [[-1], []]}}, r"column 'tags': indices must lie in"),
        ({"items": [[0], [1]], "width": 1}, r"column 'items': indices must lie in \[0, 1\); got 0 to 1"),
        (
            {"items": [[0, 0], [1]]},
            "column 'items': indices must ascend without repeats within a row; example '0' has others",
        ),
        ({"items": [[0], "12"]}, "column 'items': row 1 must be a list of whole numbers; got '12'"),
        ({"items": [[0], ["1"]]}, r"column 'items': row 1 must be a list of whole numbers; got \['1'\]"),
        ({"items": [[0], [1.5]]}, r"column 'items': row 1 must be a list of whole numbers; got \[1.5\]"),
        ({"items": [0, 1]}, "column 'items': row 0 must be a list of whole numbers; got 0"),
        ({"values": [[1, 1], ["x"]]}, r"column 'items.value': row 1 must be a list of numbers; got \['x'\]"),
        ({"values": [[1, NAN], [1]]}, "column 'items': values must be finite numbers"),
        ({"values": [[1, 1e39], [1]]}, "column 'items': values must be finite numbers"),
        (
            {"dense": {"age": [[1, 2], [3]]}},
            r"column 'age': row 1 must be a list of numbers, as many as in row 0 .*; got \[3\]",
        ),
        (
            {"dense": {"age": [[], []]}},
            r"column 'age': row 0 must be a list of numbers, .* at least one; got \[\]",
        ),
        ({"dense": {"age": [1, 2]}}, "column 'age': row 0 must be a list of numbers, .*; got 1"),
        ({"dense": {"age": [["x"], ["y"]]}}, r"column 'age': row 0 must be a list of numbers; got \['x'\]"),
        (
            {"dense": {"age": [[1], [NAN]]}},
            "column 'age': values must be finite numbers; example '1' has nan",
        ),
        ({"weights": [1, -1]}, "weight must be a finite number of at least 0; example '1' has -1"),
        ({"weights": [1, NAN]}, "weight must be a finite number of at least 0; example '1' has nan"),
        ({"weights": [1, "x"]}, "column 'weight': row 0 must be a list of numbers; got"),
        ({"ids": ["a", "a"]}, "ids must be different texts; got 'a' twice. Rename it"),
        ({"ids": [1, 2]}, "ids must be different texts; got 1. Rename it"),
        ({"item_ids": ["x", "y", "x"]}, "item_ids must be different texts; got 'x' twice"),
    ],
)
def test_what_is_no_list_of_the_kind_is_refused_in_one_sentence(tmp_path, lists, message):
    with pytest.raises(DataError, match=message):
        dataset_from_lists(tmp_path / "ds", **{"items": [[0, 2], [1]]} | lists)
    assert list(tmp_path.iterdir()) == []


def test_numpy_rows_are_lists_too(tmp_path):
    dataset = dataset_from_lists(
        tmp_path / "ds",
        [np.array([2, 0]), np.array([], dtype=np.int64)],
        dense={"age": np.ones((2, 3))},
        weights=np.ones(2),
    )
    assert dataset.sparse("items", slice(None)).indices.tolist() == [0, 2]
    assert dataset.dense("age", slice(None)).shape == (2, 3)
