"""Datasets of extreme classification hold the points of the files, and wrong files leave nothing."""

import gzip

import pytest

from tests.extreme import LABELS, write_points
from tests.mistakes import mistake
from widenet.data.contents import verify
from widenet.data.extreme import ingest_extreme
from widenet.errors import DataError, OptionError

TRAIN = "3 4 3\n1,0 0:0.5 3:2\n1 3:1.5\n 2:-1e-1\n"


def points_of(dataset, part="train"):
    """The labels and the features with values of each point, by the numbers of the file."""
    labels, features = dataset.sparse("labels", slice(None), part), dataset.sparse("features", slice(None))
    names, words = dataset.vocabulary("labels"), dataset.vocabulary("features")
    found = []
    for row in range(dataset.num_examples):
        own, of_row = (slice(*batch.indptr[row : row + 2].tolist()) for batch in (labels, features))
        ids = words.ids(features.indices[of_row].numpy())
        values = dict(zip(map(int, ids), features.values[of_row].tolist(), strict=True))
        found.append((sorted(map(int, names.ids(labels.indices[own].numpy()))), values))
    return found


def test_datasets_hold_the_points_of_the_files(tmp_path):
    train = write_points(tmp_path / "train.txt", 200, 0)
    test = write_points(tmp_path / "test.txt", 50, 1)
    (tmp_path / "test.txt.gz").write_bytes(gzip.compress((tmp_path / "test.txt").read_bytes()))
    made, of_test = ingest_extreme(
        tmp_path / "train.txt", tmp_path / "a", test=tmp_path / "test.txt.gz", test_out=tmp_path / "b"
    )
    assert points_of(made) == train
    assert points_of(of_test, "heldout") == test
    for dataset in (made, of_test):
        verify(dataset.path, dataset.manifest)
    counts = made.counts("labels")
    assert (counts[:-1] >= counts[1:]).all()
    assert made.vocabulary("labels").counts.tolist() == counts.tolist()
    assert made.vocabulary("labels").ids(range(LABELS)) == of_test.vocabulary("labels").ids(range(LABELS))


def test_values_of_a_repeated_feature_are_added_and_labels_count_once(tmp_path):
    (tmp_path / "train.txt").write_text("1 4 3\n1,1 3:0.5 0:1 3:2\n")
    made, _ = ingest_extreme(tmp_path / "train.txt", tmp_path / "a")
    assert points_of(made) == [([1], {0: 1.0, 3: 2.5})]


def test_filtered_pairs_are_known_and_no_truth(tmp_path):
    (tmp_path / "train.txt").write_text(TRAIN)
    (tmp_path / "filter.txt").write_text("0 0\n2 1\n0 2\n\n0 0\n")
    _, test = ingest_extreme(
        tmp_path / "train.txt",
        tmp_path / "a",
        test=tmp_path / "train.txt",
        test_out=tmp_path / "b",
        filter_pairs=tmp_path / "filter.txt",
    )
    assert [labels for labels, _ in points_of(test, "heldout")] == [[1], [1], []]
    assert [labels for labels, _ in points_of(test)] == [[0, 2], [], [1]]
    assert test.ids(slice(None)) == ["test-0", "test-1", "test-2"]


@pytest.mark.parametrize(
    ("test", "pairs", "place", "line"),
    [
        ("1 4 2\n1 0:1\n", "", "test.txt", 1),
        ("1 4 3\n7 0:1\n", "", "test.txt", 2),
        ("1 4 3\n1 0:1\n", "0\n", "filter.txt", 1),
        ("1 4 3\n1 0:1\n", "0 1\n1 1\n", "filter.txt", 2),
    ],
)
def test_a_wrong_test_file_leaves_neither_dataset(tmp_path, test, pairs, place, line):
    for name, text in (("train.txt", TRAIN), ("test.txt", test), ("filter.txt", pairs)):
        (tmp_path / name).write_text(text)
    options = {"test": tmp_path / "test.txt", "test_out": tmp_path / "b"}
    with mistake(DataError, place=place, line=line):
        ingest_extreme(
            tmp_path / "train.txt", tmp_path / "a", **options, filter_pairs=tmp_path / "filter.txt"
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["filter.txt", "test.txt", "train.txt"]


@pytest.mark.parametrize(
    "options", [{"test": "x"}, {"test_out": "x"}, {"filter_pairs": "x"}, {"test": "x", "test_out": "a"}]
)
def test_options_that_belong_together_are_asked_for(tmp_path, options):
    with mistake(OptionError):
        ingest_extreme(tmp_path / "train.txt", "a", **options)


@pytest.mark.parametrize("places", [("a/b/train", "a"), ("a", "b/../a/c/test")])
def test_neither_dataset_may_lie_in_the_other(tmp_path, places):
    (tmp_path / "train.txt").write_text(TRAIN)
    out, test_out = (tmp_path / place for place in places)
    with mistake(OptionError, option="out"):
        ingest_extreme(tmp_path / "train.txt", out, test=tmp_path / "train.txt", test_out=test_out)
    assert [path.name for path in tmp_path.iterdir()] == ["train.txt"]
