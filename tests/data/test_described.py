"""Descriptions of items: made by an ingest, kept by splits, and refused where they cannot be made."""

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.mistakes import mistake
from tests.rows import dense_rows
from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.data.described import Described, described_file, normalization
from widenet.data.ingest import ingest
from widenet.data.split import split
from widenet.errors import DataError, OptionError

LOG = {"user": list("aabbbcccddd"), "item": list("wxwxywxywxy")}
ITEMS = {
    "id": ["z", "y", "w", "v"],
    "genre": [["a", "b"], ["b"], [], ["c", "b", "b"]],
    "new": [True, False, None, True],
    "price": [9.0, 2.0, 4.0, None],
    "pages": [1, 2, 3, 4],
    "word": ["3", "4", "five", None],
}
SPARSE, DENSE = {"kind": "genre", "new": "new"}, {"size": ["pages", "price"]}


def made(folder, **options):
    return ingest(
        LOG,
        folder,
        **{"items": ITEMS, "items_id": "id", "items_sparse": SPARSE, "items_dense": DENSE} | options,
    )


def test_items_without_interactions_become_features_after_all_others(tmp_path):
    dataset = made(tmp_path / "data")
    assert dataset.vocabulary("items").ids(range(5)) == ["w", "x", "y", "v", "z"]
    assert dataset.counts("items").tolist() == [4, 4, 3, 0, 0]
    assert dataset.vocabulary("items").counts.tolist() == [4, 4, 3, 0, 0]
    assert dataset.manifest.source["items_without_interactions"] == 2
    assert dataset.field("items").described == {"kind": 3, "new": 2, "size": 2}
    verify(dataset.path, dataset.manifest)


def test_categories_are_numbered_by_falling_number_of_items(tmp_path):
    described = made(tmp_path / "data").described("items")
    assert described.categories == {"kind": ["b", "a", "c"], "new": ["true", "false"]}
    rows = dense_rows(described.rows(["kind", "new", "size"]), 7)
    assert rows.tolist() == [
        [0, 0, 0, 0, 0, 3, 4],
        [0, 0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 1, 2, 2],
        [1, 0, 1, 1, 0, 4, 0],
        [1, 1, 0, 1, 0, 1, 9],
    ]


def test_numbers_are_normalized_over_the_items_of_training(tmp_path):
    described = made(tmp_path / "data", normalize=True).described("items")
    found = described.facts["size"]
    assert (found["mean"], found["deviation"]) == ([2.5, 3.0], [0.5, 1.0])
    numbers = dense_rows(described.rows(["size"]), 2)
    assert numbers.tolist() == [[1, 1], [0, 0], [-1, -1], [3, 0], [-3, 6]]


def test_the_order_of_the_sources_does_not_count(tmp_path):
    turned = {name: column[::-1] for name, column in ITEMS.items()}
    made(tmp_path / "a", normalize=True)
    made(tmp_path / "b", normalize=True, items=turned)
    one, other = ((tmp_path / name / described_file("items")).read_bytes() for name in "ab")
    assert one == other


def test_splits_keep_descriptions(tmp_path):
    whole = made(tmp_path / "data")
    parts = [split(whole, tmp_path / "split", heldout=0.3)]
    parts.append(
        split(whole, tmp_path / "train", users_out=tmp_path / "users", heldout_users=0.5, heldout=0.5)
    )
    parts.append(Dataset.open(tmp_path / "users"))
    for part in parts:
        verify(part.path, part.manifest)
        assert part.field("items").described == whole.field("items").described
        assert np.array_equal(
            dense_rows(part.described_rows("items", ["kind", "size"]), 5),
            dense_rows(whole.described_rows("items", ["kind", "size"]), 5),
        )


def test_a_vocabulary_that_does_not_grow_takes_no_new_items(tmp_path):
    ingest(LOG, tmp_path / "before")
    kept = made(tmp_path / "kept", vocabulary=tmp_path / "before")
    assert kept.vocabulary("items").ids(range(3)) == ["w", "x", "y"]
    assert dense_rows(kept.described_rows("items", ["size"]), 2).tolist() == [[3, 4], [0, 0], [2, 2]]
    grown = made(tmp_path / "grown", vocabulary=tmp_path / "before", grow=True)
    assert grown.vocabulary("items").ids(range(5)) == ["w", "x", "y", "v", "z"]


@pytest.mark.parametrize(
    ("options", "column"),
    [
        ({"items_sparse": {"g": "gener"}}, "gener"),
        ({"items_sparse": {"g": "id"}}, "id"),
        ({"items_dense": {"p": ["price", "zzz"]}}, "zzz"),
        ({"items_dense": {"w": ["word"]}}, "word"),
        ({"items": ITEMS | {"word": ["1", "inf", "2", None]}, "items_dense": {"w": ["word"]}}, "word"),
        ({"items_dense": {"g": ["genre"]}}, "genre"),
    ],
)
def test_what_cannot_describe_is_refused_and_leaves_nothing(tmp_path, options, column):
    with mistake(DataError, column=column):
        made(tmp_path / "data", **options)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"items": None, "items_id": None}, "items_sparse"),
        ({"items": None, "items_id": None, "items_sparse": None}, "items_dense"),
        ({"items_dense": {"kind": ["price"]}}, "items_dense"),
        ({"items_sparse": {"a/b": "genre"}}, "items_sparse"),
        ({"items_dense": {"size": ["price", "price"]}}, "items_dense"),
        ({"items_dense": None, "normalize": True}, "normalize"),
    ],
)
def test_options_that_do_not_go_together_are_named(tmp_path, options, option):
    with mistake(OptionError, option=option):
        made(tmp_path / "data", **options)


def test_damaged_descriptions_are_named(tmp_path):
    dataset = made(tmp_path / "data")
    path = tmp_path / "data" / "items.described.arrow"
    whole = pa.ipc.open_file(path.read_bytes()).read_all()
    with mistake(DataError):
        Described.open(path, 4)
    path.write_bytes(path.read_bytes()[:-60] + bytes(60))
    with mistake(DataError, place="described.arrow"):
        dataset.described_rows("items", ["kind"])
    kinds = {"kind": {"categories": ["a", "b", "c"]}, "new": {"categories": ["a", "b"]}}
    size = {"columns": ["pages", "price"], "mean": [1.0], "deviation": [1.0, 2.0]}
    for facts in ({}, kinds | {"kind": {"categories": ["one"]}}, kinds | {"size": size}):
        table = whole.replace_schema_metadata({b"descriptions": json.dumps(facts)})
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        with mistake(DataError):
            Described.open(path, 5)


def test_mean_and_deviation_are_those_of_numpy_without_missing_numbers():
    numbers = np.random.default_rng(0).normal(3, 2, (50, 2))
    numbers[7, 1] = np.nan
    mean, deviation = normalization(numbers)
    assert mean == pytest.approx(np.nanmean(numbers, axis=0), rel=1e-12)
    assert deviation == pytest.approx(np.nanstd(numbers, axis=0), rel=1e-12)


def test_the_order_of_rows_moves_no_bit():
    numbers = np.array([[1e16], [1.0], [-1e16], [1e-3], [3.0]])
    assert normalization(numbers) == normalization(numbers[[3, 2, 4, 0, 1]])
    assert normalization(numbers)[0] == [4.001 / 5]


@pytest.mark.parametrize("rows", [3, 109, 1000])
def test_a_constant_column_is_constant_although_its_mean_is_rounded(rows):
    found = normalization(np.array([[19.95, np.nan, -1e38]]).repeat(rows, axis=0))
    assert found == ([19.95, 0.0, -1e38], [1.0, 1.0, 1.0])
