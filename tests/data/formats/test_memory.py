"""Tables in memory: dictionaries, tuples, rows, and ids that became floating-point numbers."""

import numpy as np
import pandas as pd
import pytest

from widenet.data.ingest import ingest
from widenet.errors import DataError, OptionError
from widenet.fitting import fit

PAIRS = [("u", "a"), ("u", "b"), ("v", "a")]
GIVEN = {
    "tuples": PAIRS,
    "a generator of tuples": iter(PAIRS),
    "a tuple of tuples": tuple(PAIRS),
    "a dictionary": {"user": ["u", "u", "v"], "item": np.array(["a", "b", "a"])},
    "rows": [{"user": user, "item": item} for user, item in PAIRS],
    "two dictionaries": [{"user": ["u"], "item": ["a"]}, {"item": ["b", "a"], "user": ["u", "v"]}],
}
ORDER = "without names the order must be user, item, value, time; the second entries look like"


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


@pytest.mark.parametrize("missing", [np.nan, None, np.inf])
def test_a_missing_id_is_named(tmp_path, missing):
    with pytest.raises(DataError, match=r'^the table: row 2: column "user" must not be empty'):
        ingest({"user": [1.0, missing], "item": [1, 2]}, tmp_path / "ds")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            [("u", "a"), ("v", "b", 2)],
            "tuples must have the same length; got 2 and 3. Give each (user, item), or also a value.",
        ),
        (
            [(7, 978300760, 11), (7, 978302109, 12)],
            f"{ORDER} seconds since 1970. Reorder them, or give a dictionary of columns.",
        ),
        (
            (np.array([7, 8]), np.array([978300760, 978302109])),
            f"{ORDER} seconds since 1970. Reorder them, or give a dictionary of columns.",
        ),
        (
            np.array([[7, 20240501], [8, 20240502]]),
            f"{ORDER} days. Reorder them, or give a dictionary of columns.",
        ),
        (
            [(1, 10**20)],
            (
                "every column must be of one type that Arrow has; Python int too large to convert to C long."
                " Convert the column."
            ),
        ),
        (
            {"user": [1, 1, 2], "item": ["a", "b"]},
            "all columns must have the same number of rows; 'item' has 2, and 'user' has 3. Fill the gaps"
            " with None.",
        ),
        (
            {"user": ["u"], "item": [["a", "b"]]},
            "no column is obviously the item; it has user. Name one with `item`.",
        ),
        (
            {"Kunde;Artikel": ["u;a"]},
            "no column is obviously the user; it has Kunde;Artikel. Name one with `user`, or read the file"
            " with sep=';'.",
        ),
        (
            [{"user": "alice", "items": [1, 2]}],
            (
                "every column must be of one type that Arrow has; column 'user' is str, and must be a list or"
                " an array. Convert the column."
            ),
        ),
    ],
)
def test_other_python_is_refused(tmp_path, given, said):
    with pytest.raises(DataError) as refused:
        ingest(given, tmp_path / "ds")
    assert str(refused.value) == f"the table: {said}"


def test_whole_numbers_in_categories_stay_whole_numbers(tmp_path):
    table = pd.DataFrame({"user": [1, 2, 2], "item": pd.Series([1032, 7, 1032]).astype("category")})
    model = fit(table, tmp_path / "run", quiet=True, device="cpu")
    assert [row.item for row in model.recommend([7], k=1)] == [1032]


def test_the_row_labels_that_a_filter_leaves_are_no_column(tmp_path):
    said = []
    table = pd.DataFrame({"user": [1, 2, 2, 3], "item": [7, 8, 9, 7], "note": 0})
    ingest(table[table.item != 8], tmp_path / "ds", on_progress=said.append)
    assert any(line.endswith("; not read: note") for line in said), said
    assert ingest(table.set_index("user"), tmp_path / "named").num_examples == 3


def test_a_column_and_a_list_of_unlike_entries_are_refused_with_their_place(tmp_path):
    with pytest.raises(DataError, match=r"one for the item; got a Series, which is one column. Give a DataF"):
        ingest(pd.Series([1, 2]), tmp_path / "ds")
    twice = pd.DataFrame([[1, 2, 3]], columns=["user", "item", "item"])
    with pytest.raises(
        DataError, match=r'every column must have its own name; two are "item"\. Rename one\.'
    ):
        ingest(twice, tmp_path / "ds")
    for entries, said in (
        ([(1, "a"), (2,)], r"^entry 1 of the list must be a tuple .*; got \(2,\). Fix"),
        ([(1, "a"), [2, "b"]], r"^entry 1 of the list must be a tuple .*; got \[2, 'b'\]"),
    ):
        with pytest.raises(OptionError, match=said):
            ingest(entries, tmp_path / "ds")
