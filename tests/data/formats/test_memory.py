"""Tables in memory: dictionaries, tuples, rows, and ids that became floating-point numbers."""

import numpy as np
import pandas as pd
import pytest

from widenet.data.ingest import ingest
from widenet.runs.training import fit

PAIRS = [("u", "a"), ("u", "b"), ("v", "a")]
GIVEN = {
    "tuples": PAIRS,
    "a generator of tuples": iter(PAIRS),
    "a tuple of tuples": tuple(PAIRS),
    "a dictionary": {"user": ["u", "u", "v"], "item": np.array(["a", "b", "a"])},
    "rows": [{"user": user, "item": item} for user, item in PAIRS],
    "two dictionaries": [{"user": ["u"], "item": ["a"]}, {"item": ["b", "a"], "user": ["u", "v"]}],
}


@pytest.mark.parametrize("kind", GIVEN)
def test_plain_python_is_a_source(tmp_path, kind):
    dataset = ingest(GIVEN[kind], tmp_path / "ds")
    assert dataset.ids(slice(None)) == ["u", "v"]
    assert dataset.vocabulary("items").all_ids().to_pylist() == ["a", "b"]
    assert dataset.sparse("items", slice(None)).indices.tolist() == [0, 1, 0]


def test_tuples_hold_values_and_times(tmp_path):
    dataset = ingest([("u", "a", 2, 10), ("u", "a", 3, 9)], tmp_path / "ds", value="value", time="time")
    assert dataset.sparse("items", slice(None)).values.tolist() == [2.0]


@pytest.mark.parametrize("as_parquet", [False, True])
def test_ids_that_became_floats_are_whole_numbers(tmp_path, as_parquet):
    table = pd.DataFrame({"user": [1.0, 20.0, 3e15], "item": [1.5, 2.0, -7.0], "group": [1.0, np.nan, 2.0]})
    if as_parquet:
        table.to_parquet(tmp_path / "a.parquet")
    given = tmp_path / "a.parquet" if as_parquet else table
    titles = {"id": [2.0], "title": ["two"]}
    dataset = ingest(
        given,
        tmp_path / "ds",
        sparse={"group": "group"},
        titles=titles,
        users={"id": [20.0], "age": [3]},
        dense={"a": ["age"]},
    )
    assert dataset.ids(slice(None)) == ["1", "20", "3000000000000000"]
    assert dataset.vocabulary("items").all_ids().to_pylist() == ["-7", "1.5", "2"]
    assert dataset.vocabulary("group").all_ids().to_pylist() == ["1", "2"]
    assert dataset.dense("a", slice(None))[:, 0].tolist() == [0.0, 3.0, 0.0]
    assert dataset.manifest.source["items_with_title"] == 1


def test_whole_numbers_in_categories_stay_whole_numbers(tmp_path):
    table = pd.DataFrame({"user": [1, 2, 2], "item": pd.Series([1032, 7, 1032]).astype("category")})
    model = fit(table, tmp_path / "run", quiet=True, device="cpu")
    assert [row.item for row in model.recommend([7], k=1)] == [1032]
